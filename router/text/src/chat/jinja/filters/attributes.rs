//! Attributes by name, as filters take them: `"function.name"`, `0`.

use minijinja::{Error, Value};

use crate::chat::jinja::args::{Args, required};
use crate::chat::jinja::operators::item;
use crate::chat::jinja::print::text;
use crate::chat::jinja::value::Kind;
use crate::chat::jinja::{methods, operators};

/// Looks an attribute up, part by part; where it is not defined, a default stands for it.
pub struct Attribute {
    parts: Vec<Value>,
    default: Option<Value>,
}

impl Attribute {
    pub fn new(name: &Value, default: Option<Value>) -> Self {
        let parts = match name.as_str() {
            Some(name) => name.split('.').map(part).collect(),
            None => vec![name.clone()],
        };
        Self { parts, default: default.filter(|default| !default.is_none()) }
    }

    /// No attribute is the value itself.
    pub fn optional(name: Option<Value>) -> Option<Self> {
        name.filter(|name| !name.is_none()).map(|name| Self::new(&name, None))
    }

    pub fn of(&self, value: &Value) -> Result<Value, Error> {
        let mut value = value.clone();
        for part in &self.parts {
            value = item(&value, part)?;
            if let (true, Some(default)) = (value.is_undefined(), &self.default) {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

fn part(name: &str) -> Value {
    match name.parse::<i64>() {
        Ok(place) if name.bytes().all(|byte| byte.is_ascii_digit()) => Value::from(place),
        _ => Value::from(name),
    }
}

/// `attr`: an attribute and never an item.
pub fn attr(args: Args) -> Result<Value, Error> {
    let [value, name] = args.bind(["value", "name"])?;
    let (value, name) = (required(value, "value")?, text(&required(name, "name")?));
    match Kind::of(&value) {
        Kind::Other => value.get_attr(&name),
        kind if methods::of(kind, &name) != methods::Known::No => operators::attribute(&value, &name),
        _ => Ok(Value::UNDEFINED),
    }
}
