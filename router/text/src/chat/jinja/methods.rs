//! Methods of Python's strings, dicts, lists and numbers. Those that would change a value are refused, as in the sandbox
//! that transformers renders in.

use std::fmt;
use std::sync::Arc;

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Object, ObjectRepr, Tuple};
use minijinja::{Error, ErrorKind, State, Value};

use super::args::{Args, required, switch, whole};
use super::iterators::{Part, View};
use super::operators::{integer, printable};
use super::strings::{self, Ends};
use super::value::{Kind, fault, items, pairs};

/// What a type has of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Allowed,
    /// It would change the value.
    Refused,
    No,
}

/// Whether values of `kind` have a method of this name.
pub fn of(kind: Kind, name: &str) -> Known {
    let (allowed, refused): (&[&str], &[&str]) = match kind {
        Kind::Str => (STR, &[]),
        Kind::Dict => (DICT, DICT_CHANGES),
        Kind::List => (LIST, LIST_CHANGES),
        Kind::Tuple | Kind::Range => (TUPLE, &[]),
        Kind::Int => (INT, &[]),
        Kind::Float => (FLOAT, &[]),
        _ => (&[], &[]),
    };
    if allowed.contains(&name) {
        Known::Allowed
    } else if refused.contains(&name) {
        Known::Refused
    } else {
        Known::No
    }
}

/// Whether any type has a method of this name.
pub fn is_name(name: &str) -> bool {
    [STR, DICT, DICT_CHANGES, LIST, LIST_CHANGES, TUPLE, INT, FLOAT].iter().any(|names| names.contains(&name))
}

const STR: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
const DICT: &[&str] = &["copy", "get", "items", "keys", "values"];
const DICT_CHANGES: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];
const LIST: &[&str] = &["copy", "count", "index"];
const LIST_CHANGES: &[&str] = &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
const TUPLE: &[&str] = &["count", "index"];
const INT: &[&str] = &["bit_length", "conjugate"];
const FLOAT: &[&str] = &["conjugate", "is_integer"];

/// `value.name(…)`, for minijinja's hook for methods that it does not have itself.
pub fn call(value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let kind = Kind::of(value);
    match of(kind, name) {
        Known::No => return Err(Error::from(ErrorKind::UnknownMethod)),
        Known::Refused => {
            return Err(fault(format!("{}.{name} would change the {0}; a template may not", kind.name())));
        }
        Known::Allowed => {}
    }
    let args = Args::of(args)?;
    match kind {
        Kind::Str => str_method(value, name, args),
        Kind::Dict => dict_method(value, name, args),
        Kind::List | Kind::Tuple | Kind::Range => list_method(value, name, args),
        _ => number_method(value, name),
    }
}

/// A method that was looked up and not called yet.
#[derive(Debug)]
pub struct BoundMethod {
    value: Value,
    name: String,
}

impl BoundMethod {
    pub fn value(value: Value, name: &str) -> Value {
        Value::from_object(Self { value, name: name.to_owned() })
    }
}

impl Object for BoundMethod {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        call(&self.value, &self.name, args)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<built-in method {} of {} object>", self.name, Kind::of(&self.value).name())
    }
}

fn dict_method(dict: &Value, name: &str, args: Args) -> Result<Value, Error> {
    let object = dict.as_object().ok_or_else(|| Error::from(ErrorKind::UnknownMethod))?.clone();
    let part = match name {
        "keys" => Part::Keys,
        "values" => Part::Values,
        "items" => Part::Items,
        "copy" => return Ok(Value::from_pairs(pairs(dict))),
        _ => {
            let [key, default] = args.bind(["key", "default"])?;
            let found = object.get_value(&required(key, "key")?);
            return Ok(found.or(default).unwrap_or(Value::from(())));
        }
    };
    let [] = args.bind([])?;
    Ok(View::value(object, part))
}

fn list_method(list: &Value, name: &str, args: Args) -> Result<Value, Error> {
    let all = items(list)?;
    match name {
        "count" => {
            let [value] = args.bind(["value"])?;
            let value = required(value, "value")?;
            Ok(Value::from(all.iter().filter(|item| **item == value).count()))
        }
        "index" => {
            let [value] = args.bind(["value"])?;
            let value = required(value, "value")?;
            let place = all.iter().position(|item| *item == value);
            place.map(Value::from).ok_or_else(|| fault("the value is not in the list"))
        }
        _ => Ok(Value::from(all)),
    }
}

fn number_method(number: &Value, name: &str) -> Result<Value, Error> {
    match name {
        "is_integer" => Ok(Value::from(f64::try_from(number.clone())?.fract() == 0.0)),
        "bit_length" => {
            let number = i128::try_from(number.clone())?.unsigned_abs();
            Ok(integer(i128::from(u128::BITS - number.leading_zeros())))
        }
        _ => Ok(number.clone()),
    }
}

fn str_method(value: &Value, name: &str, args: Args) -> Result<Value, Error> {
    let text = value.as_str().unwrap_or_default();
    let made: String = match name {
        "capitalize" => strings::capitalize(text),
        "casefold" | "lower" => text.to_lowercase(),
        "upper" => text.to_uppercase(),
        "title" => strings::title(text),
        "swapcase" => strings::swap_case(text),
        "strip" => stripped(text, args, Ends::Both)?,
        "lstrip" => stripped(text, args, Ends::Start)?,
        "rstrip" => stripped(text, args, Ends::End)?,
        "removeprefix" => {
            let prefix = one_text(args)?;
            text.strip_prefix(&*prefix).unwrap_or(text).to_owned()
        }
        "removesuffix" => {
            let suffix = one_text(args)?;
            text.strip_suffix(&*suffix).unwrap_or(text).to_owned()
        }
        "replace" => replaced(value, args)?,
        "join" => joined(text, args)?,
        "format" => return formatted(text, args),
        "center" | "ljust" | "rjust" => justified(text, name, args)?,
        "zfill" => filled(text, args)?,
        "expandtabs" => expanded(text, args)?,
        "split" | "rsplit" | "splitlines" | "partition" | "rpartition" => return parts(text, name, args),
        "count" | "find" | "index" | "rfind" | "rindex" => return searched(text, name, args),
        "startswith" | "endswith" => return ended(text, name, args),
        _ => return Ok(Value::from(is(text, name))),
    };
    // Methods of text that is marked as safe give such text.
    Ok(if value.is_safe() { Value::from_safe_string(made) } else { Value::from(made) })
}

fn one_text(args: Args) -> Result<String, Error> {
    let [value] = args.bind(["value"])?;
    as_text(&required(value, "value")?)
}

fn as_text(value: &Value) -> Result<String, Error> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| fault(format!("a str is needed, not {}", Kind::of(value).name())))
}

fn optional_text(value: Option<Value>) -> Result<Option<String>, Error> {
    value.filter(|value| !value.is_none()).map(|value| as_text(&value)).transpose()
}

fn stripped(text: &str, args: Args, ends: Ends) -> Result<String, Error> {
    let [chars] = args.bind(["chars"])?;
    Ok(strings::strip(text, optional_text(chars)?.as_deref(), ends).to_owned())
}

fn replaced(value: &Value, args: Args) -> Result<String, Error> {
    let text = value.as_str().unwrap_or_default();
    let [old, new, count] = args.bind(["old", "new", "count"])?;
    let (old, new) = (required(old, "old")?, required(new, "new")?);
    // What is put into text that is marked as safe is escaped.
    let escape = value.is_safe() && !new.is_safe();
    let (old, new) = (as_text(&old)?, as_text(&new)?);
    let new = if escape { strings::escape_html(&new) } else { new };
    let limit = limit(count, "count")?;
    let places = text.matches(&*old).count().min(limit.unwrap_or(usize::MAX));
    check_size(text.len().saturating_add(places.saturating_mul(new.len())))?;
    Ok(match limit {
        Some(limit) => text.replacen(&*old, &new, limit),
        None => text.replace(&*old, &new),
    })
}

/// Python's counts: negative is no limit.
fn limit(value: Option<Value>, name: &str) -> Result<Option<usize>, Error> {
    Ok(whole(value, name)?.and_then(|count| usize::try_from(count).ok()))
}

fn joined(separator: &str, args: Args) -> Result<String, Error> {
    let [values] = args.bind(["iterable"])?;
    let mut out = String::new();
    for (place, item) in items(&required(values, "iterable")?)?.iter().enumerate() {
        if place > 0 {
            out.push_str(separator);
        }
        let text = item.as_str();
        let kind = Kind::of(item).name();
        out.push_str(text.ok_or_else(|| fault(format!("sequence item {place}: expected str instance, {kind} found")))?);
        check_size(out.len())?;
    }
    Ok(out)
}

fn formatted(text: &str, args: Args) -> Result<Value, Error> {
    let mut values = args.into_values();
    for value in &mut values {
        if !value.is_kwargs() {
            *value = printable(value);
        }
    }
    Ok(Value::from(format(FormatStyle::StrFormat, text, &values)?))
}

fn justified(text: &str, name: &str, args: Args) -> Result<String, Error> {
    let [width, fill] = args.bind(["width", "fillchar"])?;
    let fill = optional_text(fill)?.unwrap_or_else(|| " ".to_owned());
    let width = whole(width, "width")?.unwrap_or(0).max(0) as usize;
    check_size(width)?;
    let missing = width.saturating_sub(text.chars().count());
    let left = match name {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width & 1),
    };
    Ok([fill.repeat(left), text.to_owned(), fill.repeat(missing - left)].concat())
}

fn filled(text: &str, args: Args) -> Result<String, Error> {
    let [width] = args.bind(["width"])?;
    let width = whole(width, "width")?.unwrap_or(0).max(0) as usize;
    check_size(width)?;
    let zeros = "0".repeat(width.saturating_sub(text.chars().count()));
    let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
    Ok([sign, &zeros, digits].concat())
}

fn expanded(text: &str, args: Args) -> Result<String, Error> {
    let [size] = args.bind(["tabsize"])?;
    let size = whole(size, "tabsize")?.unwrap_or(8).clamp(0, 64) as usize;
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' if size > 0 => {
                let spaces = size - column % size;
                out.push_str(&" ".repeat(spaces));
                column += spaces;
            }
            '\t' => {}
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            c => {
                out.push(c);
                column += 1;
            }
        }
    }
    Ok(out)
}

fn parts(text: &str, name: &str, args: Args) -> Result<Value, Error> {
    let list = |parts: Vec<String>| Value::from(parts.into_iter().map(Value::from).collect::<Vec<_>>());
    match name {
        "splitlines" => {
            let [keep] = args.bind(["keepends"])?;
            Ok(list(strings::lines(text, switch(keep)).into_iter().map(str::to_owned).collect()))
        }
        "split" | "rsplit" => {
            let [separator, count] = args.bind(["sep", "maxsplit"])?;
            let separator = optional_text(separator)?;
            if separator.as_deref() == Some("") {
                return Err(fault("empty separator"));
            }
            let split = if name == "split" { strings::split } else { strings::rsplit };
            Ok(list(split(text, separator.as_deref(), limit(count, "maxsplit")?)))
        }
        _ => {
            let separator = one_text(args)?;
            if separator.is_empty() {
                return Err(fault("empty separator"));
            }
            let found = if name == "partition" { text.split_once(&*separator) } else { text.rsplit_once(&*separator) };
            let (before, middle, after) = match found {
                Some((before, after)) => (before, &*separator, after),
                None if name == "partition" => (text, "", ""),
                None => ("", "", text),
            };
            Ok(Value::from(Tuple::from([before, middle, after].map(Value::from))))
        }
    }
}

/// The part of the text that `start` and `end` of a search name, and how many characters are before it.
fn window(text: &str, start: Option<Value>, end: Option<Value>) -> Result<Option<(&str, usize)>, Error> {
    let len = text.chars().count() as i64;
    let place = |bound: i64| if bound < 0 { (bound + len).max(0) } else { bound };
    let start = place(whole(start, "start")?.unwrap_or(0));
    let end = place(whole(end, "end")?.unwrap_or(len)).min(len);
    if start > end {
        return Ok(None);
    }
    let byte = |place: i64| text.char_indices().nth(place as usize).map_or(text.len(), |(at, _)| at);
    Ok(Some((&text[byte(start)..byte(end)], start as usize)))
}

fn searched(text: &str, name: &str, args: Args) -> Result<Value, Error> {
    let [part, start, end] = args.bind(["sub", "start", "end"])?;
    let part = as_text(&required(part, "sub")?)?;
    let window = window(text, start, end)?;
    if name == "count" {
        return Ok(Value::from(window.map_or(0, |(text, _)| text.matches(&*part).count())));
    }
    let found = window.and_then(|(text, before)| {
        let at = if name.starts_with('r') { text.rfind(&*part) } else { text.find(&*part) };
        at.map(|at| before + text[..at].chars().count())
    });
    match found {
        Some(place) => Ok(Value::from(place)),
        None if name.ends_with("index") => Err(fault("substring not found")),
        None => Ok(Value::from(-1)),
    }
}

fn ended(text: &str, name: &str, args: Args) -> Result<Value, Error> {
    let [parts, start, end] = args.bind(["part", "start", "end"])?;
    let parts = required(parts, "part")?;
    let parts = match Kind::of(&parts) {
        Kind::Str => vec![parts],
        Kind::Tuple => items(&parts)?,
        kind => return Err(fault(format!("{name} first arg must be str or a tuple of str, not {}", kind.name()))),
    };
    let Some((text, _)) = window(text, start, end)? else { return Ok(Value::from(false)) };
    for part in &parts {
        let part = as_text(part)?;
        if if name == "startswith" { text.starts_with(&*part) } else { text.ends_with(&*part) } {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

/// `isalpha` and the like: all characters are of a kind, and there is one at least.
fn is(text: &str, name: &str) -> bool {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    let cased =
        |wanted: fn(char) -> bool, other: fn(char) -> bool| text.chars().any(wanted) && !text.chars().any(other);
    match name {
        "isascii" => text.is_ascii(),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isdecimal" => all(is_decimal),
        "isdigit" => all(|c| is_decimal(c) || SUPERSCRIPT_DIGITS.contains(c)),
        "isnumeric" => all(char::is_numeric),
        "isspace" => all(strings::is_space),
        "islower" => cased(char::is_lowercase, char::is_uppercase),
        "isupper" => cased(char::is_uppercase, char::is_lowercase),
        "istitle" => text.chars().any(char::is_alphabetic) && strings::title(text) == text,
        _ => text.chars().all(super::print::is_printable),
    }
}

/// Digits that are not read as decimal ones; of the others of Unicode no chat has been seen to ask.
const SUPERSCRIPT_DIGITS: &str = "²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉①②③④⑤⑥⑦⑧⑨";

fn is_decimal(c: char) -> bool {
    use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};
    c.general_category() == GeneralCategory::DecimalNumber
}

/// Texts that are made from small ones must not outgrow the memory before they are paid for.
fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes > MAX_TEXT { Err(Error::from(ErrorKind::OutOfFuel)) } else { Ok(()) }
}

/// Longest text that a method makes, bytes.
const MAX_TEXT: usize = 32 << 20;
