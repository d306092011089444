//! What Python would call a value.

use minijinja::value::{DynObject, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::iterators::{Generator, Group, Range, View};
use super::methods::BoundMethod;

/// Python's types, as far as templates can tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Undefined,
    None,
    Bool,
    Int,
    Float,
    Str,
    List,
    Tuple,
    Dict,
    /// A sequence that is read once, such as what `map` gives.
    Generator,
    /// A dict's keys, values or items.
    View,
    Range,
    /// Anything else: functions, macros, namespaces, loops.
    Other,
}

impl Kind {
    pub fn of(value: &Value) -> Self {
        match value.kind() {
            ValueKind::Undefined => Self::Undefined,
            ValueKind::None => Self::None,
            ValueKind::Bool => Self::Bool,
            ValueKind::Number if value.is_integer() => Self::Int,
            ValueKind::Number => Self::Float,
            ValueKind::String => Self::Str,
            ValueKind::Seq if value.is_tuple() || value.downcast_object_ref::<Group>().is_some() => Self::Tuple,
            ValueKind::Seq => Self::List,
            ValueKind::Iterable => of_iterable(value),
            ValueKind::Map if value.as_object().is_some_and(is_dict) => Self::Dict,
            _ => Self::Other,
        }
    }

    /// Python's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Undefined => "Undefined",
            Self::None => "NoneType",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Str => "str",
            Self::List => "list",
            Self::Tuple => "tuple",
            Self::Dict => "dict",
            Self::Generator => "generator",
            Self::View => "dict view",
            Self::Range => "range",
            Self::Other => "object",
        }
    }

    pub fn is_number(self) -> bool {
        matches!(self, Self::Bool | Self::Int | Self::Float)
    }
}

fn of_iterable(value: &Value) -> Kind {
    if value.downcast_object_ref::<Generator>().is_some() {
        Kind::Generator
    } else if value.downcast_object_ref::<View>().is_some() {
        Kind::View
    } else if value.downcast_object_ref::<Range>().is_some() {
        Kind::Range
    } else {
        // minijinja's own lists that are made as they are read.
        Kind::List
    }
}

/// minijinja's namespaces, loops and modules are maps too; they are private, so they are told by name.
fn is_dict(object: &DynObject) -> bool {
    let name = object.type_name();
    name.contains("IndexMap") || name.contains("KwargsValues")
}

/// A method that was looked up and not called.
pub fn is_callable(value: &Value) -> bool {
    value.downcast_object_ref::<BoundMethod>().is_some() || value.kind() == ValueKind::Plain
}

/// Python's `TypeError` and its like.
pub fn fault(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

/// The items that a `for` would see.
pub fn items(value: &Value) -> Result<Vec<Value>, Error> {
    match Kind::of(value) {
        Kind::None | Kind::Bool | Kind::Int | Kind::Float | Kind::Other => {
            Err(fault(format!("'{}' object is not iterable", Kind::of(value).name())))
        }
        Kind::Undefined => Ok(Vec::new()),
        _ => Ok(value.try_iter()?.collect()),
    }
}

/// Keys and values of a dict, in order.
pub fn pairs(value: &Value) -> Vec<(Value, Value)> {
    let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
    pairs.map_or_else(Vec::new, Iterator::collect)
}
