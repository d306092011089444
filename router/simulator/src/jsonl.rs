//! A workload as a file: one JSON object a line, one request each.
//!
//! ```text
//! {"at_ms": 0, "prompt_tokens": 500, "output_tokens": 200, "max_new_tokens": 800, "tenant": "a", "priority": 0,
//!  "deadline_ms": null, "prefix": "sys1", "prefix_tokens": 900}
//! ```
//!
//! All but the first three are optional. Empty lines are skipped.

use headrace_scheduler::{Micros, Priority, Tokens};
use serde::Deserialize;

use crate::workload::{Arrival, Prefix, Workload};

/// What is wrong with a workload file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonlError {
    /// Not JSON, a field missing or unknown, or a value of the wrong type.
    #[error("line {line}: {reason}")]
    Malformed { line: usize, reason: String },
    #[error("line {line}: {field}: {reason}")]
    Field { line: usize, field: String, reason: String },
    #[error("no request in it; write one JSON object a line")]
    Empty,
}

/// Reads a workload.
///
/// # Errors
///
/// Names the line, counted from 1, and the field.
pub fn read_jsonl(text: &str) -> Result<Workload, JsonlError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let arrivals = lines.map(|(index, line)| parse(index + 1, line)).collect::<Result<Vec<_>, _>>()?;
    if arrivals.is_empty() { Err(JsonlError::Empty) } else { Ok(Workload::new(arrivals)) }
}

/// A line as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at_ms: f64,
    prompt_tokens: u32,
    output_tokens: u32,
    max_new_tokens: Option<u32>,
    tenant: Option<String>,
    priority: Option<i64>,
    deadline_ms: Option<f64>,
    prefix: Option<String>,
    prefix_tokens: Option<u32>,
}

fn parse(line: usize, text: &str) -> Result<Arrival, JsonlError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let fields: Line = serde_path_to_error::deserialize(&mut json).map_err(|error| malformed(line, &error))?;
    json.end().map_err(|_| JsonlError::Malformed { line, reason: "more than one JSON object".to_owned() })?;
    fields.check().map_err(|(field, reason)| JsonlError::Field { line, field: field.to_owned(), reason })
}

fn malformed(line: usize, error: &serde_path_to_error::Error<serde_json::Error>) -> JsonlError {
    let field = error.path().to_string();
    // serde_json counts lines and columns of its own; of a single line only the column says something.
    let reason = error.inner().to_string().replace(" at line 1 column", " at column");
    match field.as_str() {
        "." => JsonlError::Malformed { line, reason },
        _ => JsonlError::Field { line, field, reason },
    }
}

type Wrong = (&'static str, String);

impl Line {
    fn check(self) -> Result<Arrival, Wrong> {
        let prompt = at_least_one("prompt_tokens", self.prompt_tokens)?;
        let output = at_least_one("output_tokens", self.output_tokens)?;
        let max_new = self.max_new_tokens.map_or(output, Tokens);
        if max_new < output {
            return Err(("max_new_tokens", format!("{max_new} is less than output_tokens, which is {output}")));
        }
        let priority = self.priority.unwrap_or_default();
        let band = || ("priority", format!("{priority} is outside -100 … 100"));
        Ok(Arrival {
            at: moment("at_ms", self.at_ms)?,
            prompt,
            output,
            max_new,
            tenant: self.tenant.unwrap_or_else(|| "default".to_owned()),
            priority: Priority::new(priority).ok_or_else(band)?,
            deadline: self.deadline_ms.map(|deadline| moment("deadline_ms", deadline)).transpose()?,
            prefix: prefix(self.prefix, self.prefix_tokens, prompt)?,
            blocks: None,
            leaves: None,
        })
    }
}

fn at_least_one(field: &'static str, value: u32) -> Result<Tokens, Wrong> {
    if value == 0 { Err((field, "must be at least 1".to_owned())) } else { Ok(Tokens(value)) }
}

fn moment(field: &'static str, ms: f64) -> Result<Micros, Wrong> {
    /// A year; later moments are mistakes.
    const LATEST_MS: f64 = 365.0 * 86_400_000.0;
    if !(0.0..=LATEST_MS).contains(&ms) {
        return Err((field, format!("{ms} is not between 0 and a year in milliseconds")));
    }
    Ok(Micros((ms * 1000.0).round() as u64))
}

fn prefix(name: Option<String>, tokens: Option<u32>, prompt: Tokens) -> Result<Option<Prefix>, Wrong> {
    match (name, tokens.map(Tokens)) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(("prefix_tokens", "is missing beside prefix".to_owned())),
        (None, Some(_)) => Err(("prefix", "is missing beside prefix_tokens".to_owned())),
        (Some(_), Some(tokens)) if tokens > prompt => {
            Err(("prefix_tokens", format!("{tokens} is more than prompt_tokens, which is {prompt}")))
        }
        (Some(name), Some(tokens)) => Ok(Some(Prefix { name, tokens })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_fields_make_a_request() {
        let workload = read_jsonl("{\"at_ms\": 1.5, \"prompt_tokens\": 3, \"output_tokens\": 2}\n\n").expect("valid");
        assert_eq!(workload.arrivals(), [Arrival::new(Micros(1500), Tokens(3), Tokens(2))]);
    }

    #[test]
    fn every_field_is_read_and_lines_are_sorted_by_arrival() {
        let text = r#"{"at_ms": 9, "prompt_tokens": 1, "output_tokens": 1}
            {"at_ms": 0, "prompt_tokens": 500, "output_tokens": 200, "max_new_tokens": 800, "tenant": "a",
             "priority": -100, "deadline_ms": 250, "prefix": "sys1", "prefix_tokens": 400}"#
            .replace(",\n", ",");
        let workload = read_jsonl(&text).expect("valid");
        let expected = Arrival {
            max_new: Tokens(800),
            tenant: "a".to_owned(),
            priority: Priority::BATCH,
            deadline: Some(Micros(250_000)),
            prefix: Some(Prefix { name: "sys1".to_owned(), tokens: Tokens(400) }),
            ..Arrival::new(Micros(0), Tokens(500), Tokens(200))
        };
        assert_eq!(workload.arrivals()[0], expected);
    }

    /// What follows a good first line, and what the error must contain.
    const WRONG: &[(&str, &[&str])] = &[
        ("{", &["line 2", "EOF"]),
        ("[]", &["line 2", "column 2"]),
        (r#"{"at_ms": 0, "prompt_tokens": 1}"#, &["line 2", "output_tokens"]),
        (r#"{"at_ms": 0, "prompt_tokens": "x", "output_tokens": 1}"#, &["line 2", "prompt_tokens", "string"]),
        (r#"{"at_ms": 0, "prompt_tokens": 0, "output_tokens": 1}"#, &["line 2", "prompt_tokens", "at least 1"]),
        (r#"{"at_ms": 0, "prompt_tokens": 1, "output_tokens": 0}"#, &["line 2", "output_tokens", "at least 1"]),
        (r#"{"at_ms": -1, "prompt_tokens": 1, "output_tokens": 1}"#, &["line 2", "at_ms", "-1"]),
        (r#"{"at_ms": 0, "prompt_tokens": 1, "output_tokens": 1, "tennant": "a"}"#, &["line 2", "tennant"]),
        (r#"{"at_ms": 0, "prompt_tokens": 1, "output_tokens": 2, "max_new_tokens": 1}"#, &["line 2", "max_new_tokens"]),
        (r#"{"at_ms": 0, "prompt_tokens": 1, "output_tokens": 1, "priority": 101}"#, &["line 2", "priority", "101"]),
        (r#"{"at_ms": 0, "prompt_tokens": 1, "output_tokens": 1, "prefix": "a"}"#, &["line 2", "prefix_tokens"]),
        (r#"{"at_ms": 0, "prompt_tokens": 1, "output_tokens": 1, "prefix_tokens": 1}"#, &["line 2", "prefix:"]),
        (
            r#"{"at_ms": 0, "prompt_tokens": 1, "output_tokens": 1, "prefix": "a", "prefix_tokens": 2}"#,
            &["line 2", "prefix_tokens", "prompt_tokens"],
        ),
        (r#"{"at_ms": 0, "prompt_tokens": 1, "output_tokens": 1} {}"#, &["line 2", "more than one"]),
    ];

    #[test]
    fn an_error_names_line_and_field() {
        let good = "{\"at_ms\": 0, \"prompt_tokens\": 1, \"output_tokens\": 1}\n";
        for (wrong, parts) in WRONG {
            let error = read_jsonl(&format!("{good}{wrong}")).expect_err(wrong).to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{wrong}: {error}");
        }
        assert_eq!(read_jsonl("\n"), Err(JsonlError::Empty));
    }
}
