//! Tests (`x is iterable`) as jinja2 has them.

use minijinja::{Environment, Error, State, Value};

use super::args::{Args, required};
use super::print::text;
use super::value::{Kind, is_callable};

type Test = fn(&Value) -> bool;

/// Puts jinja2's tests in, and takes those out that it does not have.
pub fn install(environment: &mut Environment<'_>) {
    for name in ["int", "safe", "startingwith", "endingwith"] {
        environment.remove_test(name);
    }
    let tests: [(&'static str, Test); 10] = [
        ("iterable", |value| {
            !matches!(Kind::of(value), Kind::None | Kind::Bool | Kind::Int | Kind::Float)
                && (Kind::of(value) != Kind::Other
                    || value.as_object().is_some_and(|object| object.try_iter().is_some()))
        }),
        ("sequence", |value| {
            use Kind::{Dict, List, Range, Str, Tuple, Undefined};
            matches!(Kind::of(value), Undefined | Str | List | Tuple | Dict | Range)
        }),
        ("mapping", |value| Kind::of(value) == Kind::Dict),
        ("string", |value| Kind::of(value) == Kind::Str),
        ("number", |value| Kind::of(value).is_number()),
        ("integer", |value| Kind::of(value) == Kind::Int),
        ("float", |value| Kind::of(value) == Kind::Float),
        ("boolean", |value| Kind::of(value) == Kind::Bool),
        ("callable", is_callable),
        ("escaped", Value::is_safe),
    ];
    for (name, test) in tests {
        environment.add_test(name, move |value: &Value| test(value));
    }
    environment.add_test("lower", |value: &Value| is_lower(&text(value)));
    environment.add_test("upper", |value: &Value| is_upper(&text(value)));
    environment.add_test("in", |state: &mut State, value: Value, container: Value| {
        super::filters::charge(state, std::slice::from_ref(&container))?;
        super::operators::contained(&value, &container)
    });
}

fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)
}

fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
}

/// Applies the test of this name, for `select` and its kin.
pub fn apply(state: &mut State, name: &str, value: Value, args: &[Value]) -> Result<bool, Error> {
    let mut values = vec![value];
    values.extend_from_slice(args);
    state.perform_test(name, &values)
}

/// The name of a test or filter, and the arguments after it.
pub fn named(args: Args) -> Result<(String, Vec<Value>), Error> {
    let (name, rest) = args.first()?;
    let name = required(name.as_str().map(Value::from), "name")?;
    Ok((text(&name), rest.into_values()))
}
