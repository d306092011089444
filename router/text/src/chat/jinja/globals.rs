//! jinja2's global objects that minijinja does not have.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::value::{Object, ObjectRepr};
use minijinja::{Error, ErrorKind, State, Value};

use super::args::Args;
use super::value::fault;

/// `cycler("a", "b")`: its values one after the other, again and again.
#[derive(Debug)]
pub struct Cycler {
    values: Vec<Value>,
    place: AtomicUsize,
}

impl Cycler {
    pub fn call(args: Args) -> Result<Value, Error> {
        let values = args.into_places()?;
        if values.is_empty() {
            return Err(fault("at least one item has to be provided"));
        }
        Ok(Value::from_object(Self { values, place: AtomicUsize::new(0) }))
    }

    fn current(&self) -> Value {
        self.values[self.place.load(Ordering::Relaxed) % self.values.len()].clone()
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current")).then(|| self.current())
    }

    fn call_method(self: &Arc<Self>, _: &mut State<'_, '_>, name: &str, _: &[Value]) -> Result<Value, Error> {
        match name {
            "next" => {
                let current = self.current();
                self.place.fetch_add(1, Ordering::Relaxed);
                Ok(current)
            }
            "reset" => {
                self.place.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

/// `joiner(", ")`: nothing the first time, its text from then on.
#[derive(Debug)]
pub struct Joiner {
    separator: Value,
    calls: AtomicUsize,
}

impl Joiner {
    pub fn call(args: Args) -> Result<Value, Error> {
        let [separator] = args.bind(["sep"])?;
        let separator = separator.unwrap_or_else(|| Value::from(", "));
        Ok(Value::from_object(Self { separator, calls: AtomicUsize::new(0) }))
    }
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, _: &[Value]) -> Result<Value, Error> {
        let first = self.calls.fetch_add(1, Ordering::Relaxed) == 0;
        Ok(if first { Value::from("") } else { self.separator.clone() })
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<Joiner>")
    }
}
