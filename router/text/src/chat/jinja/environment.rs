//! minijinja's surroundings of a template, made like those in which transformers renders.

use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::args::Args;
use super::globals::{Cycler, Joiner};
use super::iterators::Range;
use super::print::text;
use super::{filters, methods, predicates};

/// The one environment of all templates.
pub static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(|out, _, value| match value.as_str() {
        Some(text) => out.write_str(text).map_err(Error::from),
        None => out.write_str(&text(value)).map_err(Error::from),
    });
    environment.set_unknown_method_callback(|state: &mut State, value, name, args| {
        filters::charge(state, std::slice::from_ref(value))?;
        filters::charge(state, args)?;
        methods::call(value, name, args)
    });
    filters::install(&mut environment);
    predicates::install(&mut environment);
    environment.remove_global("debug");
    environment.add_function("range", |args: Rest<ValueOrKwargs>| Range::call(Args::of_rest(args)?));
    environment.add_function("cycler", |args: Rest<ValueOrKwargs>| Cycler::call(Args::of_rest(args)?));
    environment.add_function("joiner", |args: Rest<ValueOrKwargs>| Joiner::call(Args::of_rest(args)?));
    environment.add_function("raise_exception", raise_exception);
    environment
});

/// White space around statements as transformers sets it.
pub fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the usual delimiters are different from each other")
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, text(message)).with_source(Refusal))
}

/// Tells a template's own refusal from other errors.
#[derive(Debug, thiserror::Error)]
#[error("the template refuses")]
pub struct Refusal;

/// Steps that one rendering may take. Text costs a step for each 64 bytes that are made or looked through, so this bounds
/// the memory as well. Some templates put the prompt together in a variable and copy it with each message: a chat of a
/// thousand messages of a kilobyte must fit. It is about a second of work.
pub const FUEL: u64 = 20_000_000;
