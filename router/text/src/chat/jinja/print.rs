//! Values as Python prints them.

use std::fmt::Write;

use minijinja::Value;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use super::value::{Kind, items, pairs};

/// `str(value)`.
pub fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => String::new(),
        None => repr(value),
    }
}

/// `repr(value)`.
pub fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(&mut out, value);
    out
}

fn write_repr(out: &mut String, value: &Value) {
    match Kind::of(value) {
        Kind::Undefined => out.push_str("Undefined"),
        Kind::None => out.push_str("None"),
        Kind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        Kind::Float => out.push_str(&float(f64::try_from(value.clone()).unwrap_or(f64::NAN))),
        Kind::Str if value.is_safe() => {
            out.push_str("Markup(");
            write_quoted(out, value.as_str().unwrap_or_default());
            out.push(')');
        }
        Kind::Str => write_quoted(out, value.as_str().unwrap_or_default()),
        Kind::List => write_items(out, '[', value, ']'),
        Kind::Tuple => write_items(out, '(', value, ')'),
        Kind::Dict => write_dict(out, value),
        Kind::Int | Kind::Generator | Kind::View | Kind::Range | Kind::Other => {
            // Writing to a string cannot fail.
            let _ = write!(out, "{value}");
        }
    }
}

fn write_items(out: &mut String, open: char, value: &Value, close: char) {
    out.push(open);
    let items = items(value).unwrap_or_default();
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        write_repr(out, item);
    }
    if open == '(' && items.len() == 1 {
        out.push(',');
    }
    out.push(close);
}

fn write_dict(out: &mut String, value: &Value) {
    out.push('{');
    for (place, (key, value)) in pairs(value).iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        write_repr(out, key);
        out.push_str(": ");
        write_repr(out, value);
    }
    out.push('}');
}

/// Single quotes unless only they are in the text; what cannot be seen is escaped.
fn write_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                let code = c as u32;
                let _ = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Python's `str.isprintable` of one character.
pub fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        _ if super::super::guard::is_twin(c) => true,
        _ => !matches!(
            c.general_category(),
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::Surrogate
                | GeneralCategory::PrivateUse
                | GeneralCategory::Unassigned
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
                | GeneralCategory::SpaceSeparator
        ),
    }
}

/// The shortest digits that read back as the number: plain from 1e-4 up to 1e16, with an exponent beyond.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
