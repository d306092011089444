//! Jinja as transformers renders it: jinja2 in Python's sandbox. minijinja does the work; here is what it does otherwise.
//!
//! - `generation` and `rewrite` change a template before it is compiled (`program`): a tag that only transformers has, and
//!   operators that mean something else in Python.
//! - `print` and `json` show values as Python does.
//! - `filters`, `predicates` (jinja2's tests) and `methods` replace minijinja's, by way of `args`, `strings`, `iterators`.
//! - `environment` puts them together, with a bound on what one rendering may cost.

mod args;
mod environment;
mod filters;
mod generation;
mod globals;
mod iterators;
mod json;
mod methods;
mod operators;
mod predicates;
mod print;
mod program;
mod rewrite;
mod strings;
mod value;

use minijinja::Value;
use serde_json::Value as Json;

pub use environment::{FUEL, Refusal};
pub use print::repr as python_repr;
pub use program::Program;

/// A request's value; whole numbers stay whole.
pub fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(fields) => Value::from_pairs(fields.iter().map(|(name, value)| (name.as_str(), from_json(value)))),
    }
}
