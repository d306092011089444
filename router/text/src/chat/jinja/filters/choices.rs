//! Filters that apply others: `map`, `select` and their kin. What they give is read once, as in Python. Of anything that is
//! false, such as `none`, they make nothing.

use minijinja::{Error, ErrorKind, State, Value};

use super::attributes::Attribute;
use crate::chat::jinja::args::{Args, required};
use crate::chat::jinja::iterators::Generator;
use crate::chat::jinja::predicates;
use crate::chat::jinja::value::items;

pub fn map(state: &mut State, args: Args) -> Result<Value, Error> {
    let (values, mut args) = args.first()?;
    let mut made = Vec::new();
    if !values.is_true() {
        return Ok(Generator::over(made));
    }
    if let Some(name) = args.take("attribute") {
        let attribute = Attribute::new(&name, args.take("default"));
        let [] = args.bind([])?;
        for value in items(&values)? {
            made.push(attribute.of(&value)?);
        }
    } else {
        let (name, rest) = predicates::named(args)?;
        for value in items(&values)? {
            let mut all = vec![value];
            all.extend_from_slice(&rest);
            made.push(state.apply_filter(&name, &all)?);
        }
    }
    Ok(Generator::over(made))
}

pub fn select(state: &mut State, args: Args) -> Result<Value, Error> {
    choose(state, args, false, true)
}

pub fn reject(state: &mut State, args: Args) -> Result<Value, Error> {
    choose(state, args, false, false)
}

pub fn selectattr(state: &mut State, args: Args) -> Result<Value, Error> {
    choose(state, args, true, true)
}

pub fn rejectattr(state: &mut State, args: Args) -> Result<Value, Error> {
    choose(state, args, true, false)
}

/// The items whose value, or an attribute of it, passes a test (`wanted`) or does not; without a test, is true or not.
fn choose(state: &mut State, args: Args, by_attribute: bool, wanted: bool) -> Result<Value, Error> {
    let (values, args) = args.first()?;
    if !values.is_true() {
        return Ok(Generator::over([]));
    }
    let (attribute, args) = if by_attribute {
        let (name, args) = args.first().map_err(|_| Error::from(ErrorKind::MissingArgument))?;
        (Some(Attribute::new(&required(Some(name), "attribute")?, None)), args)
    } else {
        (None, args)
    };
    let test = if args.is_empty() { None } else { Some(predicates::named(args)?) };
    let mut chosen = Vec::new();
    for value in items(&values)? {
        let looked_at = match &attribute {
            Some(attribute) => attribute.of(&value)?,
            None => value.clone(),
        };
        let passes = match &test {
            Some((name, rest)) => predicates::apply(state, name, looked_at, rest)?,
            None => looked_at.is_true(),
        };
        if passes == wanted {
            chosen.push(value);
        }
    }
    Ok(Generator::over(chosen))
}
