//! Python's sequences that are neither list nor tuple.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{DynObject, Enumerator, Object, ObjectExt, ObjectRepr};
use minijinja::{Error, Value};

use super::args::{Args, required, whole};
use super::print::repr;
use super::value::fault;

/// Items that can be read once. It is true even when it is empty, has no length and no items by number.
#[derive(Debug)]
pub struct Generator {
    items: Mutex<VecDeque<Value>>,
}

impl Generator {
    pub fn over(items: impl IntoIterator<Item = Value>) -> Value {
        Value::from_object(Self { items: Mutex::new(items.into_iter().collect()) })
    }

    fn next(&self) -> Option<Value> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let this = self.clone();
        Enumerator::Iter(Box::new(std::iter::from_fn(move || this.next())))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<generator object>")
    }
}

/// Which part of a dict a view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Keys,
    Values,
    Items,
}

/// What `keys`, `values` and `items` of a dict give.
#[derive(Debug)]
pub struct View {
    dict: DynObject,
    part: Part,
}

impl View {
    pub fn value(dict: DynObject, part: Part) -> Value {
        Value::from_object(Self { dict, part })
    }
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let part = self.part;
        let Some(pairs) = self.dict.try_iter_pairs() else { return Enumerator::Empty };
        Enumerator::Iter(Box::new(pairs.map(move |(key, value)| match part {
            Part::Keys => key,
            Part::Values => value,
            Part::Items => pair(key, value),
        })))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.dict.enumerator_len()
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.part {
            Part::Keys => "dict_keys",
            Part::Values => "dict_values",
            Part::Items => "dict_items",
        };
        let items: Vec<Value> = self.try_iter().into_iter().flatten().collect();
        write!(f, "{name}({})", repr(&Value::from(items)))
    }
}

/// A tuple of two.
pub fn pair(first: Value, second: Value) -> Value {
    Value::from(minijinja::value::Tuple::from([first, second]))
}

/// A group of `groupby`: a name and its members, which are a tuple of two as well.
#[derive(Debug)]
pub struct Group {
    name: Value,
    members: Value,
}

impl Group {
    pub fn value(name: Value, members: Value) -> Value {
        Value::from_object(Self { name, members })
    }
}

impl Object for Group {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match (key.as_str(), key.as_usize()) {
            (Some("grouper"), _) | (None, Some(0)) => Some(self.name.clone()),
            (Some("list"), _) | (None, Some(1)) => Some(self.members.clone()),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(2)
    }
}

/// Python's `range`, with the sandbox's limit.
#[derive(Debug)]
pub struct Range {
    start: i64,
    stop: i64,
    step: i64,
    len: usize,
}

impl Range {
    /// The global function.
    pub fn call(args: Args) -> Result<Value, Error> {
        let [first, second, step] = args.bind(["start", "stop", "step"])?;
        let first = whole(Some(required(first, "stop")?), "stop")?.ok_or_else(|| fault("range needs whole numbers"))?;
        let (start, stop) = match whole(second, "stop")? {
            Some(stop) => (first, stop),
            None => (0, first),
        };
        let step = whole(step, "step")?.unwrap_or(1);
        if step == 0 {
            return Err(fault("range() arg 3 must not be zero"));
        }
        let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
        let len = if span <= 0 { 0 } else { ((span as u64 - 1) / step.unsigned_abs() + 1) as usize };
        if len > MAX_RANGE {
            return Err(fault(format!("a range has at most {MAX_RANGE} items here")));
        }
        Ok(Value::from_object(Self { start, stop, step, len }))
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let (start, step) = (self.start, self.step);
        Enumerator::Iter(Box::new((0..self.len as i64).map(move |place| Value::from(start + place * step))))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.len)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            1 => write!(f, "range({}, {})", self.start, self.stop),
            step => write!(f, "range({}, {}, {step})", self.start, self.stop),
        }
    }
}

/// As jinja2's sandbox.
const MAX_RANGE: usize = 100_000;
