//! Filters of single values.

use minijinja::{Error, Value};

use crate::chat::jinja::args::{Args, required, switch, whole};
use crate::chat::jinja::operators;
use crate::chat::jinja::print::text;
use crate::chat::jinja::strings::{Ends, strip};
use crate::chat::jinja::value::{Kind, fault};

pub fn default(args: Args) -> Result<Value, Error> {
    let [value, default, boolean] = args.bind(["value", "default_value", "boolean"])?;
    let value = value.unwrap_or_default();
    let replace = value.is_undefined() || (switch(boolean) && !value.is_true());
    Ok(if replace { default.unwrap_or_else(|| Value::from("")) } else { value })
}

/// A whole number; what is none becomes the default.
pub fn int(args: Args) -> Result<Value, Error> {
    let [value, default, base] = args.bind(["value", "default", "base"])?;
    let value = required(value, "value")?;
    let base = whole(base, "base")?.unwrap_or(10).clamp(2, 36) as u32;
    let found = match Kind::of(&value) {
        Kind::Bool | Kind::Int => operators::whole(&value),
        Kind::Float => truncated(f64::try_from(value)?),
        Kind::Str => {
            let digits = strip(value.as_str().unwrap_or_default(), None, Ends::Both).replace('_', "");
            let prefix = match base {
                16 => "0x",
                8 => "0o",
                2 => "0b",
                _ => "",
            };
            let bare = digits.strip_prefix(prefix).unwrap_or(&digits);
            let number = i128::from_str_radix(bare, base).ok();
            number.or_else(|| truncated(digits.parse().ok()?))
        }
        _ => None,
    };
    Ok(found.map_or_else(|| default.unwrap_or_else(|| Value::from(0)), operators::integer))
}

fn truncated(number: f64) -> Option<i128> {
    number.is_finite().then_some(number.trunc() as i128)
}

pub fn float(args: Args) -> Result<Value, Error> {
    let [value, default] = args.bind(["value", "default"])?;
    let value = required(value, "value")?;
    let found = match Kind::of(&value) {
        kind if kind.is_number() => operators::real(&value).ok(),
        Kind::Str => strip(value.as_str().unwrap_or_default(), None, Ends::Both).parse().ok(),
        _ => None,
    };
    Ok(found.map_or_else(|| default.unwrap_or_else(|| Value::from(0.0)), Value::from))
}

/// Half goes to the even neighbour, as Python's `round`.
pub fn round(args: Args) -> Result<Value, Error> {
    let [value, precision, method] = args.bind(["value", "precision", "method"])?;
    let value = required(value, "value")?;
    let precision = whole(precision, "precision")?.unwrap_or(0).clamp(-300, 300) as i32;
    let method = method.map_or_else(|| "common".to_owned(), |method| text(&method));
    let number = operators::real(&value)?;
    let scale = 10f64.powi(precision);
    match method.as_str() {
        "common" if Kind::of(&value) == Kind::Int && precision >= 0 => Ok(value),
        "common" if Kind::of(&value) == Kind::Int => {
            Ok(operators::integer(((number * scale).round_ties_even() / scale) as i128))
        }
        "common" if precision >= 0 => {
            let rounded = format!("{number:.*}", precision as usize).parse().unwrap_or(number);
            Ok(Value::from(rounded))
        }
        "common" => Ok(Value::from((number * scale).round_ties_even() / scale)),
        "ceil" => Ok(Value::from((number * scale).ceil() / scale)),
        "floor" => Ok(Value::from((number * scale).floor() / scale)),
        _ => Err(fault("method must be common, ceil or floor")),
    }
}
