//! Filters as jinja2 has them.

mod attributes;
mod choices;
mod order;
mod sequences;
mod texts;
mod values;

use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{Environment, Error, State, Value};

use super::args::Args;
use super::json::tojson;
use super::operators;

/// Puts jinja2's filters and our operators in, and takes those out that jinja2 does not have.
pub fn install(environment: &mut Environment<'_>) {
    for name in ["split", "lines", "bool", "chain", "zip"] {
        environment.remove_filter(name);
    }
    for &(name, filter) in PLAIN {
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let args = Args::of_rest(args)?;
            if !CHEAP.contains(&name) {
                charge(state, args.places())?;
            }
            filter(args)
        });
    }
    for &(name, filter) in WITH_STATE {
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let args = Args::of_rest(args)?;
            charge(state, args.places())?;
            filter(state, args)
        });
    }
    install_operators(environment);
}

/// Pays for going through values: minijinja itself counts only what is made. A long list that is searched again and again
/// must not be free.
pub fn charge(state: &State, values: &[Value]) -> Result<(), Error> {
    let work = |value: &Value| match value.as_str() {
        Some(text) => text.len() / BYTES_PER_STEP,
        None => value.as_object().and_then(|_| value.len()).unwrap_or(0) / ITEMS_PER_STEP,
    };
    state.consume_fuel(values.iter().map(work).sum::<usize>() as u64)
}

const BYTES_PER_STEP: usize = 64;
const ITEMS_PER_STEP: usize = 4;

/// What these take does not depend on how long their value is.
const CHEAP: &[&str] = &["count", "d", "default", "first", "last", "length"];

type Plain = fn(Args) -> Result<Value, Error>;
type WithState = fn(&mut State, Args) -> Result<Value, Error>;

const PLAIN: &[(&str, Plain)] = &[
    ("attr", attributes::attr),
    ("batch", sequences::batch),
    ("capitalize", texts::capitalize),
    ("center", texts::center),
    ("count", sequences::length),
    ("d", values::default),
    ("default", values::default),
    ("dictsort", order::dictsort),
    ("e", texts::escape),
    ("escape", texts::escape),
    ("first", sequences::first),
    ("float", values::float),
    ("forceescape", texts::force_escape),
    ("format", texts::format),
    ("groupby", order::groupby),
    ("indent", texts::indent),
    ("int", values::int),
    ("items", sequences::items_of),
    ("join", sequences::join),
    ("last", sequences::last),
    ("length", sequences::length),
    ("list", sequences::list),
    ("lower", texts::lower),
    ("max", order::max),
    ("min", order::min),
    ("pprint", texts::pprint),
    ("replace", texts::replace),
    ("reverse", sequences::reverse),
    ("round", values::round),
    ("safe", texts::safe),
    ("slice", sequences::slice),
    ("sort", order::sort),
    ("string", texts::string),
    ("sum", sequences::sum),
    ("title", texts::title),
    ("tojson", tojson),
    ("trim", texts::trim),
    ("truncate", texts::truncate),
    ("unique", order::unique),
    ("upper", texts::upper),
    ("wordcount", texts::wordcount),
];

const WITH_STATE: &[(&str, WithState)] = &[
    ("map", choices::map),
    ("reject", choices::reject),
    ("rejectattr", choices::rejectattr),
    ("select", choices::select),
    ("selectattr", choices::selectattr),
];

fn install_operators(environment: &mut Environment<'_>) {
    environment.add_filter(operators::ATTRIBUTE, |value: &Value, name: &str| operators::attribute(value, name));
    environment.add_filter(operators::ITEM, |value: &Value, key: &Value| operators::item(value, key));
    environment.add_filter(operators::EACH, |value: &Value| operators::each(value));
    // What these make is paid for when it is made.
    environment.add_filter(operators::ADD, |a: &Value, b: &Value| operators::add(a, b));
    environment.add_filter(operators::CONCAT, |a: &Value, b: &Value| operators::concat(a, b));
    environment.add_filter(operators::REMAINDER, |a: &Value, b: &Value| operators::remainder(a, b));
    environment.add_filter(operators::CONTAINED, |state: &mut State, value: Value, container: Value| {
        charge(state, std::slice::from_ref(&container))?;
        operators::contained(&value, &container)
    });
    environment.add_filter(
        operators::SLICE,
        |state: &mut State, value: Value, start: Value, stop: Value, step: Value| {
            charge(state, std::slice::from_ref(&value))?;
            operators::slice(&value, &start, &stop, &step)
        },
    );
    for &(sign, wanted) in COMPARISONS {
        environment.add_filter(sign, move |a: &Value, b: &Value| operators::compare(a, b, sign, wanted));
    }
}

/// Which orders of two values a comparison holds for.
type Holds = fn(std::cmp::Ordering) -> bool;

const COMPARISONS: &[(&str, Holds)] = &[
    (operators::LESS, std::cmp::Ordering::is_lt),
    (operators::LESS_EQUAL, std::cmp::Ordering::is_le),
    (operators::GREATER, std::cmp::Ordering::is_gt),
    (operators::GREATER_EQUAL, std::cmp::Ordering::is_ge),
];
