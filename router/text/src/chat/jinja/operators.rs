//! Operators where minijinja's differ from Python's. `rewrite` puts them into templates as filters with names that no
//! template can write.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::Tuple;
use minijinja::{Error, Value};

use super::methods::{self, BoundMethod};
use super::print::text;
use super::strings::escape_html;
use super::value::{Kind, fault, items};

pub const ADD: &str = "+";
pub const CONCAT: &str = "~";
pub const REMAINDER: &str = "%";
pub const LESS: &str = "<";
pub const LESS_EQUAL: &str = "<=";
pub const GREATER: &str = ">";
pub const GREATER_EQUAL: &str = ">=";
pub const CONTAINED: &str = "in";
pub const ATTRIBUTE: &str = ".";
pub const ITEM: &str = "[]";
pub const SLICE: &str = "[:]";
pub const EACH: &str = "for";

/// `a + b`: text that is marked as safe escapes what it is joined with.
pub fn add(a: &Value, b: &Value) -> Result<Value, Error> {
    match (Kind::of(a), Kind::of(b)) {
        (Kind::Str, Kind::Str) => Ok(add_texts(a, b)),
        (Kind::List, Kind::List) => Ok(Value::from(chained(a, b)?)),
        (Kind::Tuple, Kind::Tuple) => Ok(Value::from(Tuple::from(chained(a, b)?))),
        (Kind::Undefined, _) => Err(undefined(a)),
        (_, Kind::Undefined) => Err(undefined(b)),
        (x, y) if x.is_number() && y.is_number() => sum(a, b),
        (x, y) => Err(unsupported("+", x, y)),
    }
}

fn add_texts(a: &Value, b: &Value) -> Value {
    let (left, right) = (a.as_str().unwrap_or_default(), b.as_str().unwrap_or_default());
    match (a.is_safe(), b.is_safe()) {
        (false, false) => Value::from([left, right].concat()),
        (true, true) => Value::from_safe_string([left, right].concat()),
        (true, false) => Value::from_safe_string([left, &escape_html(right)].concat()),
        (false, true) => Value::from_safe_string([&escape_html(left), right].concat()),
    }
}

fn chained(a: &Value, b: &Value) -> Result<Vec<Value>, Error> {
    let mut all = items(a)?;
    all.extend(items(b)?);
    Ok(all)
}

fn sum(a: &Value, b: &Value) -> Result<Value, Error> {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.checked_add(b).map(integer).ok_or_else(|| fault("the sum is too large")),
        _ => Ok(Value::from(real(a)? + real(b)?)),
    }
}

/// `a ~ b`.
pub fn concat(a: &Value, b: &Value) -> Result<Value, Error> {
    let mut out = text(a);
    out.push_str(&text(b));
    Ok(Value::from(out))
}

/// `a % b`: what is left of a division, or a text with values put in.
pub fn remainder(a: &Value, b: &Value) -> Result<Value, Error> {
    match (Kind::of(a), Kind::of(b)) {
        (Kind::Str, Kind::Tuple) => printf(a, &items(b)?),
        (Kind::Str, _) => printf(a, std::slice::from_ref(b)),
        (Kind::Undefined, _) => Err(undefined(a)),
        (_, Kind::Undefined) => Err(undefined(b)),
        (x, y) if x.is_number() && y.is_number() => modulo(a, b),
        (x, y) => Err(unsupported("%", x, y)),
    }
}

fn printf(template: &Value, values: &[Value]) -> Result<Value, Error> {
    let values: Vec<Value> = values.iter().map(printable).collect();
    Ok(Value::from(format(FormatStyle::Printf, template.as_str().unwrap_or_default(), &values)?))
}

/// Values that minijinja would print in its own way become text first.
pub fn printable(value: &Value) -> Value {
    match Kind::of(value) {
        Kind::Bool | Kind::Int | Kind::Float | Kind::Str | Kind::Dict => value.clone(),
        _ => Value::from(text(value)),
    }
}

fn modulo(a: &Value, b: &Value) -> Result<Value, Error> {
    match (whole(a), whole(b)) {
        (_, Some(0)) => Err(fault("integer modulo by zero")),
        (Some(a), Some(b)) => {
            let rest = a.checked_rem(b).unwrap_or(0);
            Ok(integer(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }))
        }
        _ => {
            let (a, b) = (real(a)?, real(b)?);
            if b == 0.0 {
                return Err(fault("float modulo by zero"));
            }
            let rest = a % b;
            Ok(Value::from(if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }))
        }
    }
}

/// `a < b` and the like, given which orders mean yes. Python compares like with like only.
pub fn compare(a: &Value, b: &Value, sign: &str, wanted: fn(std::cmp::Ordering) -> bool) -> Result<Value, Error> {
    match (Kind::of(a), Kind::of(b)) {
        (Kind::Undefined, _) => Err(undefined(a)),
        (_, Kind::Undefined) => Err(undefined(b)),
        (x, y) if (x.is_number() && y.is_number()) || (x == y && is_ordered(x)) => Ok(Value::from(wanted(a.cmp(b)))),
        (x, y) => Err(fault(format!("'{sign}' not supported between instances of '{}' and '{}'", x.name(), y.name()))),
    }
}

fn is_ordered(kind: Kind) -> bool {
    matches!(kind, Kind::Str | Kind::List | Kind::Tuple)
}

/// `value in container`.
pub fn contained(value: &Value, container: &Value) -> Result<Value, Error> {
    let found = match Kind::of(container) {
        Kind::Str => match value.as_str() {
            Some(part) => container.as_str().unwrap_or_default().contains(part),
            None => {
                let kind = Kind::of(value).name();
                return Err(fault(format!("'in <string>' requires string as left operand, not {kind}")));
            }
        },
        Kind::Dict => container.as_object().is_some_and(|dict| dict.get_value(value).is_some()),
        Kind::Other if container.as_object().is_some_and(|object| object.try_iter().is_some()) => {
            container.try_iter()?.any(|item| item == *value)
        }
        _ => items(container)?.contains(value),
    };
    Ok(Value::from(found))
}

/// `value.name` where the name is one of a method: the method, whatever keys the value has.
pub fn attribute(value: &Value, name: &str) -> Result<Value, Error> {
    match methods::of(Kind::of(value), name) {
        methods::Known::Allowed => Ok(BoundMethod::value(value.clone(), name)),
        methods::Known::Refused => Ok(Value::UNDEFINED),
        methods::Known::No => value.get_attr(name),
    }
}

/// `value[key]`: an item, else a method of that name.
pub fn item(value: &Value, key: &Value) -> Result<Value, Error> {
    let kind = Kind::of(value);
    if matches!(kind, Kind::Generator | Kind::View) {
        return Ok(Value::UNDEFINED);
    }
    let found = value.get_item(key)?;
    match key.as_str() {
        // A key may hold something that is not defined; then it stays so.
        Some(name) if found.is_undefined() && methods::of(kind, name) == methods::Known::Allowed => {
            Ok(BoundMethod::value(value.clone(), name))
        }
        _ => Ok(found),
    }
}

/// `value[start:stop:step]`.
pub fn slice(value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    let kind = Kind::of(value);
    match kind {
        Kind::Str => {
            let chars: Vec<char> = value.as_str().unwrap_or_default().chars().collect();
            let text: String = places(chars.len(), start, stop, step)?.map(|place| chars[place]).collect();
            Ok(if value.is_safe() { Value::from_safe_string(text) } else { Value::from(text) })
        }
        Kind::List | Kind::Tuple | Kind::Range => {
            let all = items(value)?;
            let taken: Vec<Value> = places(all.len(), start, stop, step)?.map(|place| all[place].clone()).collect();
            Ok(if kind == Kind::Tuple { Value::from(Tuple::from(taken)) } else { Value::from(taken) })
        }
        Kind::Undefined => Err(undefined(value)),
        kind => Err(fault(format!("'{}' object cannot be sliced", kind.name()))),
    }
}

/// The places that a slice takes, in its order.
fn places(len: usize, start: &Value, stop: &Value, step: &Value) -> Result<impl Iterator<Item = usize>, Error> {
    let len = len as i64;
    let step = bound(step)?.unwrap_or(1);
    if step == 0 {
        return Err(fault("slice step cannot be zero"));
    }
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |bound: i64| if bound < 0 { (bound.saturating_add(len)).max(lowest) } else { bound.min(highest) };
    let start = bound(start)?.map_or(if step > 0 { lowest } else { highest }, clamp);
    let stop = bound(stop)?.map_or(if step > 0 { highest } else { lowest }, clamp);
    let mut next = start;
    Ok(std::iter::from_fn(move || {
        let inside = if step > 0 { next < stop } else { next > stop };
        let place = inside.then_some(next as usize);
        next = next.saturating_add(step);
        place
    }))
}

fn bound(value: &Value) -> Result<Option<i64>, Error> {
    match Kind::of(value) {
        Kind::None | Kind::Undefined => Ok(None),
        Kind::Bool | Kind::Int => {
            Ok(Some(whole(value).map_or(0, |number| number.clamp(i64::MIN as i128 / 2, i64::MAX as i128 / 2) as i64)))
        }
        _ => Err(fault("slice indices must be integers or None")),
    }
}

/// What a `for` goes through; Python refuses what is no sequence. What has no length yet gets one: jinja2's loops know
/// their last item.
pub fn each(value: &Value) -> Result<Value, Error> {
    match Kind::of(value) {
        Kind::Generator | Kind::View => Ok(Value::from(items(value)?)),
        _ => iterable(value).cloned(),
    }
}

/// The value, if Python would go through it.
pub fn iterable(value: &Value) -> Result<&Value, Error> {
    match Kind::of(value) {
        kind @ (Kind::None | Kind::Bool | Kind::Int | Kind::Float) => {
            Err(fault(format!("'{}' object is not iterable", kind.name())))
        }
        _ => Ok(value),
    }
}

/// A whole number; true is 1.
pub fn whole(value: &Value) -> Option<i128> {
    match Kind::of(value) {
        Kind::Bool => Some(i128::from(value.is_true())),
        Kind::Int => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

/// A number.
pub fn real(value: &Value) -> Result<f64, Error> {
    match whole(value) {
        Some(number) => Ok(number as f64),
        None => f64::try_from(value.clone()),
    }
}

/// A whole number as minijinja likes it: small where it can be.
pub fn integer(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| Value::from(number), Value::from)
}

fn unsupported(operator: &str, a: Kind, b: Kind) -> Error {
    fault(format!("unsupported operand type(s) for {operator}: '{}' and '{}'", a.name(), b.name()))
}

fn undefined(_value: &Value) -> Error {
    Error::from(minijinja::ErrorKind::UndefinedError)
}
