//! Filters of sequences.

use minijinja::{Error, Value};

use super::attributes::Attribute;
use crate::chat::jinja::args::{Args, required, whole};
use crate::chat::jinja::iterators::{Generator, pair};
use crate::chat::jinja::operators;
use crate::chat::jinja::print::text;
use crate::chat::jinja::value::{Kind, fault, items, pairs};

fn one(args: Args) -> Result<Value, Error> {
    let [value] = args.bind(["value"])?;
    required(value, "value")
}

pub fn length(args: Args) -> Result<Value, Error> {
    let value = one(args)?;
    match Kind::of(&value) {
        Kind::Undefined => Ok(Value::from(0)),
        kind @ (Kind::None | Kind::Bool | Kind::Int | Kind::Float | Kind::Generator) => {
            Err(fault(format!("object of type '{}' has no len()", kind.name())))
        }
        _ => value.len().map(Value::from).ok_or_else(|| fault("the object has no len()")),
    }
}

pub fn list(args: Args) -> Result<Value, Error> {
    Ok(Value::from(items(&one(args)?)?))
}

pub fn first(args: Args) -> Result<Value, Error> {
    let value = one(args)?;
    // A generator loses this item only.
    Ok(operators::iterable(&value)?.try_iter()?.next().unwrap_or_default())
}

pub fn last(args: Args) -> Result<Value, Error> {
    let value = one(args)?;
    match Kind::of(&value) {
        Kind::Generator => Err(fault("'generator' object is not reversible")),
        Kind::List | Kind::Tuple | Kind::Str => value.get_item(&Value::from(-1)),
        _ => Ok(items(&value)?.pop().unwrap_or_default()),
    }
}

pub fn reverse(args: Args) -> Result<Value, Error> {
    let value = one(args)?;
    if let Some(text) = value.as_str() {
        return Ok(Value::from(text.chars().rev().collect::<String>()));
    }
    Ok(Generator::over(items(&value)?.into_iter().rev()))
}

pub fn items_of(args: Args) -> Result<Value, Error> {
    let value = one(args)?;
    match Kind::of(&value) {
        Kind::Undefined => Ok(Generator::over([])),
        Kind::Dict => Ok(Generator::over(pairs(&value).into_iter().map(|(key, value)| pair(key, value)))),
        _ => Err(fault("Can only get item pairs from a mapping.")),
    }
}

pub fn join(args: Args) -> Result<Value, Error> {
    let [values, separator, attribute] = args.bind(["value", "d", "attribute"])?;
    let separator = separator.as_ref().map(text).unwrap_or_default();
    let attribute = Attribute::optional(attribute);
    let mut out = String::new();
    for (place, item) in items(&required(values, "value")?)?.iter().enumerate() {
        if place > 0 {
            out.push_str(&separator);
        }
        match &attribute {
            Some(attribute) => out.push_str(&text(&attribute.of(item)?)),
            None => out.push_str(&text(item)),
        }
    }
    Ok(Value::from(out))
}

pub fn sum(args: Args) -> Result<Value, Error> {
    let [values, attribute, start] = args.bind(["value", "attribute", "start"])?;
    let attribute = Attribute::optional(attribute);
    let mut total = start.unwrap_or_else(|| Value::from(0));
    for item in items(&required(values, "value")?)? {
        let item = match &attribute {
            Some(attribute) => attribute.of(&item)?,
            None => item,
        };
        total = operators::add(&total, &item)?;
    }
    Ok(total)
}

pub fn batch(args: Args) -> Result<Value, Error> {
    let [values, size, fill] = args.bind(["value", "linecount", "fill_with"])?;
    let size = count(size, "linecount")?;
    let all = items(&required(values, "value")?)?;
    let batches = all.chunks(size).map(|chunk| {
        let mut batch = chunk.to_vec();
        if let Some(fill) = fill.as_ref().filter(|fill| !fill.is_none()) {
            batch.resize(size.min(MAX_FILL.max(batch.len())), fill.clone());
        }
        Value::from(batch)
    });
    Ok(Generator::over(batches.collect::<Vec<_>>()))
}

pub fn slice(args: Args) -> Result<Value, Error> {
    let [values, slices, fill] = args.bind(["value", "slices", "fill_with"])?;
    let slices = count(slices, "slices")?.min(MAX_FILL);
    let all = items(&required(values, "value")?)?;
    let (each, longer) = (all.len() / slices, all.len() % slices);
    let mut start = 0;
    let mut made = Vec::new();
    for place in 0..slices {
        let len = each + usize::from(place < longer);
        let mut part = all[start..start + len].to_vec();
        start += len;
        if let Some(fill) = fill.as_ref().filter(|fill| !fill.is_none() && place >= longer) {
            part.push(fill.clone());
        }
        made.push(Value::from(part));
    }
    Ok(Generator::over(made))
}

fn count(value: Option<Value>, name: &str) -> Result<usize, Error> {
    let count = whole(Some(required(value, name)?), name)?.filter(|&count| count > 0);
    count.map(|count| count as usize).ok_or_else(|| fault(format!("argument {name:?} must be at least 1")))
}

/// Filled places of one batch; nobody prints more.
const MAX_FILL: usize = 10_000;
