//! Filters that compare: `sort`, `unique`, `min`, `groupby` and their kin.

use minijinja::value::Tuple;
use minijinja::{Error, Value};

use super::attributes::Attribute;
use crate::chat::jinja::args::{Args, required, switch};
use crate::chat::jinja::iterators::{Generator, Group, pair};
use crate::chat::jinja::print::text;
use crate::chat::jinja::value::{Kind, fault, items, pairs};

/// What items are compared by: attributes, letters in lower case unless case counts.
struct Key {
    attributes: Vec<Attribute>,
    fold: bool,
}

impl Key {
    fn new(attribute: Option<Value>, case_sensitive: Option<Value>) -> Self {
        let attribute = attribute.filter(|name| !name.is_none());
        let attributes = attribute.map_or_else(Vec::new, |name| match name.as_str() {
            Some(names) => names.split(',').map(|name| Attribute::new(&Value::from(name), None)).collect(),
            None => vec![Attribute::new(&name, None)],
        });
        Self { attributes, fold: !switch(case_sensitive) }
    }

    fn of(&self, item: &Value) -> Result<Value, Error> {
        match self.attributes.as_slice() {
            [] => Ok(self.folded(item.clone())),
            [one] => Ok(self.folded(one.of(item)?)),
            several => {
                let parts: Result<Vec<_>, Error> = several.iter().map(|one| Ok(self.folded(one.of(item)?))).collect();
                Ok(Value::from(Tuple::from(parts?)))
            }
        }
    }

    fn folded(&self, value: Value) -> Value {
        match value.as_str() {
            Some(text) if self.fold => Value::from(text.to_lowercase()),
            _ => value,
        }
    }

    /// Each item with its key. Keys that Python cannot compare are an error.
    fn keyed(&self, values: &Value) -> Result<Vec<(Value, Value)>, Error> {
        let keyed: Result<Vec<_>, Error> = items(values)?.into_iter().map(|item| Ok((self.of(&item)?, item))).collect();
        let keyed = keyed?;
        check_comparable(keyed.iter().map(|(key, _)| Kind::of(key)))?;
        Ok(keyed)
    }
}

fn check_comparable(kinds: impl Iterator<Item = Kind>) -> Result<(), Error> {
    let mut kinds = kinds.map(|kind| if kind.is_number() { Kind::Int } else { kind });
    let Some(first) = kinds.next() else { return Ok(()) };
    for kind in kinds {
        if kind != first || !matches!(kind, Kind::Int | Kind::Str | Kind::List | Kind::Tuple) {
            let (a, b) = (kind.name(), first.name());
            return Err(fault(format!("'<' not supported between instances of '{a}' and '{b}'")));
        }
    }
    Ok(())
}

pub fn sort(args: Args) -> Result<Value, Error> {
    let [values, reverse, case_sensitive, attribute] =
        args.bind(["value", "reverse", "case_sensitive", "attribute"])?;
    let mut keyed = Key::new(attribute, case_sensitive).keyed(&required(values, "value")?)?;
    sort_by_key(&mut keyed, switch(reverse));
    Ok(Value::from(keyed.into_iter().map(|(_, item)| item).collect::<Vec<_>>()))
}

/// Equal items keep their order, also in reverse.
fn sort_by_key(keyed: &mut [(Value, Value)], reverse: bool) {
    if reverse { keyed.sort_by(|(a, _), (b, _)| b.cmp(a)) } else { keyed.sort_by(|(a, _), (b, _)| a.cmp(b)) }
}

pub fn dictsort(args: Args) -> Result<Value, Error> {
    let [dict, case_sensitive, by, reverse] = args.bind(["value", "case_sensitive", "by", "reverse"])?;
    let by = by.map_or_else(|| "key".to_owned(), |by| text(&by));
    let place = match by.as_str() {
        "key" => 0,
        "value" => 1,
        _ => return Err(fault("You can only sort by either \"key\" or \"value\"")),
    };
    let key = Key::new(None, case_sensitive);
    let mut keyed = Vec::new();
    for (name, value) in pairs(&required(dict, "value")?) {
        keyed.push((key.of(if place == 0 { &name } else { &value })?, pair(name, value)));
    }
    check_comparable(keyed.iter().map(|(key, _)| Kind::of(key)))?;
    sort_by_key(&mut keyed, switch(reverse));
    Ok(Value::from(keyed.into_iter().map(|(_, item)| item).collect::<Vec<_>>()))
}

pub fn unique(args: Args) -> Result<Value, Error> {
    let [values, case_sensitive, attribute] = args.bind(["value", "case_sensitive", "attribute"])?;
    let key = Key::new(attribute, case_sensitive);
    let mut seen = std::collections::HashSet::new();
    let mut kept = Vec::new();
    for item in items(&required(values, "value")?)? {
        if seen.insert(key.of(&item)?) {
            kept.push(item);
        }
    }
    Ok(Generator::over(kept))
}

pub fn min(args: Args) -> Result<Value, Error> {
    extreme(args, std::cmp::Ordering::is_lt)
}

pub fn max(args: Args) -> Result<Value, Error> {
    extreme(args, std::cmp::Ordering::is_gt)
}

fn extreme(args: Args, better: fn(std::cmp::Ordering) -> bool) -> Result<Value, Error> {
    let [values, case_sensitive, attribute] = args.bind(["value", "case_sensitive", "attribute"])?;
    let keyed = Key::new(attribute, case_sensitive).keyed(&required(values, "value")?)?;
    let best = keyed.into_iter().reduce(|best, next| if better(next.0.cmp(&best.0)) { next } else { best });
    Ok(best.map_or(Value::UNDEFINED, |(_, item)| item))
}

pub fn groupby(args: Args) -> Result<Value, Error> {
    let [values, name, default, case_sensitive] = args.bind(["value", "attribute", "default", "case_sensitive"])?;
    let attribute = Attribute::new(&required(name, "attribute")?, default);
    let fold = Key::new(None, case_sensitive);
    let mut keyed = Vec::new();
    for item in items(&required(values, "value")?)? {
        keyed.push((fold.folded(attribute.of(&item)?), item));
    }
    check_comparable(keyed.iter().map(|(key, _)| Kind::of(key)))?;
    sort_by_key(&mut keyed, false);
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for (key, item) in keyed {
        match groups.last_mut() {
            Some((group, _, members)) if *group == key => members.push(item),
            // A group is named as its first member has it, upper case included.
            _ => groups.push((key, attribute.of(&item)?, vec![item])),
        }
    }
    let group = |(_, name, members): (Value, Value, Vec<Value>)| Group::value(name, Value::from(members));
    Ok(Value::from(groups.into_iter().map(group).collect::<Vec<_>>()))
}
