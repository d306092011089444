//! Requests of a file: JSON lines, an object each.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// One line's request.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub(super) prompt: Prompt,
    pub output_tokens: u32,
    /// When it is due, from the start of the run. All lines of a file say so, or none.
    pub at: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Prompt {
    Text(String),
    Tokens(u32),
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: io::Error },
    #[error("{} has no requests; write one a line, such as {EXAMPLE}", path.display())]
    Empty { path: PathBuf },
    #[error("{}, line {line}: {problem}", path.display())]
    Line { path: PathBuf, line: usize, problem: LineProblem },
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum LineProblem {
    #[error("{0}; a line is an object such as {EXAMPLE}")]
    Json(String),
    #[error("prompt and prompt_tokens are both given; keep one")]
    TwoPrompts,
    #[error("neither prompt nor prompt_tokens is given; write one of them")]
    NoPrompt,
    #[error("{field} is {given}; it must be from 1 to {MOST_TOKENS}")]
    Tokens { field: &'static str, given: u64 },
    #[error("at and at_ms are both given; keep one")]
    TwoTimes,
    #[error("{field} is {given}; it must be a time from the start of the run, 0 or more and at most a year")]
    Time { field: &'static str, given: f64 },
    #[error("its time is before that of the line above; sort the lines by time")]
    Unsorted,
    #[error("at is given here and not in every other line; give it in all lines or in none")]
    SomeTimes,
}

const EXAMPLE: &str = r#"{"prompt_tokens": 50, "output_tokens": 20}"#;
const MOST_TOKENS: u32 = 10_000_000;
const YEAR_S: f64 = 365.0 * 86_400.0;

impl Listed {
    /// # Errors
    /// The file cannot be read, or a line of it is no request.
    pub fn read(path: &Path) -> Result<Vec<Self>, FileError> {
        let text = std::fs::read_to_string(path);
        Self::parse(&text.map_err(|reason| FileError::Unreadable { path: path.to_owned(), reason })?, path)
    }

    /// Of the file's text. Empty lines are skipped.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(text: &str, path: &Path) -> Result<Vec<Self>, FileError> {
        let mut requests: Vec<Self> = Vec::new();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let request = request(text, requests.last());
            requests.push(request.map_err(|problem| FileError::Line { path: path.to_owned(), line, problem })?);
        }
        if requests.is_empty() { Err(FileError::Empty { path: path.to_owned() }) } else { Ok(requests) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    prompt: Option<String>,
    prompt_tokens: Option<u64>,
    output_tokens: u64,
    /// Seconds.
    at: Option<f64>,
    /// The same as the simulator's workloads have it.
    at_ms: Option<f64>,
}

fn request(text: &str, above: Option<&Listed>) -> Result<Listed, LineProblem> {
    let line: Line = serde_json::from_str(text).map_err(|error| LineProblem::Json(said(&error)))?;
    let prompt = match (line.prompt, line.prompt_tokens) {
        (Some(_), Some(_)) => return Err(LineProblem::TwoPrompts),
        (None, None) => return Err(LineProblem::NoPrompt),
        (Some(text), None) => Prompt::Text(text),
        (None, Some(given)) => Prompt::Tokens(tokens("prompt_tokens", given)?),
    };
    let output_tokens = tokens("output_tokens", line.output_tokens)?;
    let at = match (line.at, line.at_ms) {
        (Some(_), Some(_)) => return Err(LineProblem::TwoTimes),
        (Some(at), None) => Some(time("at", at, 1.0)?),
        (None, at_ms) => at_ms.map(|at_ms| time("at_ms", at_ms, 1e-3)).transpose()?,
    };
    if let Some(above) = above {
        match (above.at, at) {
            (Some(above), Some(at)) if at < above => return Err(LineProblem::Unsorted),
            (Some(_), None) | (None, Some(_)) => return Err(LineProblem::SomeTimes),
            _ => {}
        }
    }
    Ok(Listed { prompt, output_tokens, at })
}

/// Where in the file is said already; what is left of the place is the column.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let sentence = text.split(" at line ").next().unwrap_or_default();
    format!("{sentence} (column {})", error.column())
}

fn tokens(field: &'static str, given: u64) -> Result<u32, LineProblem> {
    let within = u32::try_from(given).ok().filter(|tokens| (1..=MOST_TOKENS).contains(tokens));
    within.ok_or(LineProblem::Tokens { field, given })
}

fn time(field: &'static str, given: f64, unit_s: f64) -> Result<Duration, LineProblem> {
    let seconds = given * unit_s;
    let within = (0.0..=YEAR_S).contains(&seconds);
    Some(seconds).filter(|_| within).map(Duration::from_secs_f64).ok_or(LineProblem::Time { field, given })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Listed>, String> {
        Listed::parse(text, Path::new("w.jsonl")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_is_a_text_or_a_length_and_may_say_when() {
        let listed = parse(
            "{\"prompt\": \"a b\", \"output_tokens\": 1, \"at\": 0}\n\n\
             {\"prompt_tokens\": 7, \"output_tokens\": 2, \"at\": 1.5}\n{\"prompt_tokens\": 7, \"output_tokens\": 2, \"at_ms\": 1500}",
        );
        let at = |seconds| Some(Duration::from_secs_f64(seconds));
        let text = Listed { prompt: Prompt::Text("a b".into()), output_tokens: 1, at: at(0.0) };
        let length = Listed { prompt: Prompt::Tokens(7), output_tokens: 2, at: at(1.5) };
        assert_eq!(listed.unwrap(), [text, length.clone(), length]);
    }

    #[test]
    fn a_bad_line_is_named_with_its_number_its_field_and_what_to_do() {
        let good = r#"{"prompt_tokens": 1, "output_tokens": 1, "at": 2}"#;
        let bad = [
            ("{", "EOF while parsing an object (column 1); a line is an object such as"),
            (r#"{"prompt_tokens": 1}"#, "missing field `output_tokens`"),
            (r#"{"prompt_tokens": 1, "output_tokens": 1, "when": 1}"#, "unknown field `when`"),
            (r#"{"prompt": "a", "prompt_tokens": 1, "output_tokens": 1}"#, "prompt and prompt_tokens are both"),
            (r#"{"output_tokens": 1}"#, "neither prompt nor prompt_tokens"),
            (r#"{"prompt_tokens": 0, "output_tokens": 1}"#, "prompt_tokens is 0; it must be from 1 to 10000000"),
            (r#"{"prompt_tokens": 1, "output_tokens": 10000001}"#, "output_tokens is 10000001"),
            (r#"{"prompt_tokens": 1, "output_tokens": 1, "at": 1, "at_ms": 1}"#, "at and at_ms are both"),
            (r#"{"prompt_tokens": 1, "output_tokens": 1, "at": -1}"#, "at is -1; it must be a time"),
            (r#"{"prompt_tokens": 1, "output_tokens": 1, "at": 1}"#, "before that of the line above"),
            (r#"{"prompt_tokens": 1, "output_tokens": 1}"#, "at is given here and not in every other"),
        ];
        for (line, sentence) in bad {
            let said = parse(&format!("{good}\n\n{line}")).unwrap_err();
            assert!(said.starts_with("w.jsonl, line 3: ") && said.contains(sentence), "{line}: {said}");
        }
    }

    #[test]
    fn a_file_without_requests_is_refused() {
        assert!(parse("\n \n").unwrap_err().starts_with("w.jsonl has no requests; write one a line"));
    }
}
