//! Filters of text.

use minijinja::{Error, Value};

use crate::chat::jinja::args::{Args, required, switch, whole};
use crate::chat::jinja::print::{repr, text};
use crate::chat::jinja::strings::{self, Ends};
use crate::chat::jinja::value::fault;
use crate::chat::jinja::{methods, operators};

fn one(args: Args) -> Result<Value, Error> {
    let [value] = args.bind(["value"])?;
    required(value, "value")
}

/// The text of `value` changed; text that is marked as safe stays so.
fn changed(value: &Value, change: impl FnOnce(&str) -> String) -> Value {
    let made = change(&text(value));
    if value.is_safe() { Value::from_safe_string(made) } else { Value::from(made) }
}

pub fn string(args: Args) -> Result<Value, Error> {
    Ok(changed(&one(args)?, str::to_owned))
}

pub fn safe(args: Args) -> Result<Value, Error> {
    Ok(Value::from_safe_string(text(&one(args)?)))
}

pub fn escape(args: Args) -> Result<Value, Error> {
    let value = one(args)?;
    Ok(if value.is_safe() { value } else { Value::from_safe_string(strings::escape_html(&text(&value))) })
}

pub fn force_escape(args: Args) -> Result<Value, Error> {
    Ok(Value::from_safe_string(strings::escape_html(&text(&one(args)?))))
}

pub fn upper(args: Args) -> Result<Value, Error> {
    Ok(changed(&one(args)?, str::to_uppercase))
}

pub fn lower(args: Args) -> Result<Value, Error> {
    Ok(changed(&one(args)?, str::to_lowercase))
}

pub fn capitalize(args: Args) -> Result<Value, Error> {
    Ok(changed(&one(args)?, strings::capitalize))
}

pub fn title(args: Args) -> Result<Value, Error> {
    Ok(Value::from(strings::title_words(&text(&one(args)?))))
}

pub fn pprint(args: Args) -> Result<Value, Error> {
    Ok(Value::from(repr(&one(args)?)))
}

pub fn trim(args: Args) -> Result<Value, Error> {
    let [value, chars] = args.bind(["value", "chars"])?;
    let chars = chars.filter(|chars| !chars.is_none()).map(|chars| text(&chars));
    let value = required(value, "value")?;
    Ok(changed(&value, |text| strings::strip(text, chars.as_deref(), Ends::Both).to_owned()))
}

pub fn replace(args: Args) -> Result<Value, Error> {
    let [value, old, new, count] = args.bind(["s", "old", "new", "count"])?;
    let value = Value::from(text(&required(value, "s")?));
    let (old, new) = (text(&required(old, "old")?), text(&required(new, "new")?));
    let mut args = vec![Value::from(old), Value::from(new)];
    args.extend(whole(count, "count")?.map(Value::from));
    methods::call(&value, "replace", &args)
}

pub fn format(args: Args) -> Result<Value, Error> {
    let (template, args) = args.first()?;
    let values = args.into_places()?;
    operators::remainder(&Value::from(text(&template)), &Value::from(minijinja::value::Tuple::from(values)))
}

pub fn center(args: Args) -> Result<Value, Error> {
    let [value, width] = args.bind(["value", "width"])?;
    let width = width.unwrap_or_else(|| Value::from(80));
    methods::call(&Value::from(text(&required(value, "value")?)), "center", &[width])
}

/// All lines but the first, and those that are empty, move to the right.
pub fn indent(args: Args) -> Result<Value, Error> {
    let [value, width, first, blank] = args.bind(["s", "width", "first", "blank"])?;
    let margin = match width {
        Some(width) if width.as_str().is_some() => text(&width),
        width => " ".repeat(whole(width, "width")?.unwrap_or(4).clamp(0, MAX_INDENT) as usize),
    };
    let (first, blank) = (switch(first), switch(blank));
    let value = required(value, "s")?;
    let source = value.as_str().ok_or_else(|| fault("indent needs a text"))?.to_owned() + "\n";
    let mut out = if first { margin.clone() } else { String::new() };
    for (place, line) in strings::lines(&source, false).into_iter().enumerate() {
        if place > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&margin);
            }
        }
        out.push_str(line);
    }
    Ok(if value.is_safe() { Value::from_safe_string(out) } else { Value::from(out) })
}

pub fn truncate(args: Args) -> Result<Value, Error> {
    let [value, length, killwords, end, leeway] = args.bind(["s", "length", "killwords", "end", "leeway"])?;
    let length = whole(length, "length")?.unwrap_or(255).max(0) as usize;
    let leeway = whole(leeway, "leeway")?.unwrap_or(5).max(0) as usize;
    let end = end.map_or_else(|| "...".to_owned(), |end| text(&end));
    let value = required(value, "s")?;
    let source = text(&value);
    if source.chars().count() <= length + leeway {
        return Ok(value);
    }
    let kept: String = source.chars().take(length.saturating_sub(end.chars().count())).collect();
    let kept = if switch(killwords) { kept.as_str() } else { kept.rsplit_once(' ').map_or(&*kept, |(head, _)| head) };
    Ok(Value::from([kept, &end].concat()))
}

pub fn wordcount(args: Args) -> Result<Value, Error> {
    let source = text(&one(args)?);
    let words = source.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    Ok(Value::from(words.count()))
}

/// Wider than any text.
const MAX_INDENT: i64 = 1024;
