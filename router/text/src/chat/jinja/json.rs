//! `tojson` as transformers has it: Python's `json.dumps`, non-ASCII kept unless asked otherwise.

use std::fmt::Write;

use minijinja::{Error, Value};

use super::args::{Args, switch};
use super::print::{float, text};
use super::value::{Kind, fault, items, pairs};
use crate::chat::guard::is_twin;

/// The filter.
pub fn tojson(args: Args) -> Result<Value, Error> {
    let parameters = ["value", "ensure_ascii", "indent", "separators", "sort_keys"];
    let [value, ensure_ascii, indent, separators, sort_keys] = args.bind(parameters)?;
    let indent = indent.filter(|indent| !indent.is_none()).map(|indent| match indent.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(indent.as_i64().unwrap_or(0).clamp(0, MAX_INDENT) as usize),
    });
    let (between, after_key) = match separators.filter(|separators| !separators.is_none()) {
        Some(separators) => match items(&separators)?.as_slice() {
            [between, after_key] => (text(between), text(after_key)),
            _ => return Err(fault("separators must be two texts")),
        },
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let style = Style { ascii: switch(ensure_ascii), indent, between, after_key, sorted: switch(sort_keys) };
    let mut out = String::new();
    style.write(&mut out, &value.unwrap_or_default(), 0)?;
    Ok(Value::from(out))
}

struct Style {
    ascii: bool,
    indent: Option<String>,
    between: String,
    after_key: String,
    sorted: bool,
}

impl Style {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match Kind::of(value) {
            Kind::None => out.push_str("null"),
            Kind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            Kind::Int => out.push_str(&value.to_string()),
            Kind::Float => out.push_str(&number(value)),
            Kind::Str => self.write_text(out, value.as_str().unwrap_or_default()),
            Kind::List | Kind::Tuple => {
                let items = items(value)?;
                self.write_container(out, ('[', ']'), items.len(), depth, |out, place| {
                    self.write(out, &items[place], depth + 1)
                })?;
            }
            Kind::Dict => {
                let mut pairs = pairs(value);
                if self.sorted {
                    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                self.write_container(out, ('{', '}'), pairs.len(), depth, |out, place| {
                    let (key, value) = &pairs[place];
                    self.write_text(out, &key_text(key)?);
                    out.push_str(&self.after_key);
                    self.write(out, value, depth + 1)
                })?;
            }
            kind => return Err(fault(format!("Object of type {} is not JSON serializable", kind.name()))),
        }
        Ok(())
    }

    fn write_container(
        &self,
        out: &mut String,
        (open, close): (char, char),
        len: usize,
        depth: usize,
        mut item: impl FnMut(&mut String, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(open);
        for place in 0..len {
            if place > 0 {
                out.push_str(&self.between);
            }
            self.new_line(out, depth + 1);
            item(out, place)?;
        }
        if len > 0 {
            self.new_line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn write_text(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..='\u{1f}' => escape(out, c),
                c if self.ascii && !(' '..='~').contains(&c) && !is_twin(c) => escape(out, c),
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn escape(out: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

fn number(value: &Value) -> String {
    match float(f64::try_from(value.clone()).unwrap_or(f64::NAN)).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        number => number.to_owned(),
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match Kind::of(key) {
        Kind::Str => key.as_str().unwrap_or_default().to_owned(),
        Kind::None => "null".to_owned(),
        Kind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        Kind::Int => key.to_string(),
        Kind::Float => number(key),
        kind => return Err(fault(format!("keys must be str, int, float, bool or None, not {}", kind.name()))),
    })
}

/// Deeper than any template indents.
const MAX_INDENT: i64 = 64;
