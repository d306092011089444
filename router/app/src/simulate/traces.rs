//! `--replay` and `--fit`: what a server did, made again and measured.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use headrace_scheduler::trace::{self, ReplayError, Replayed};
use headrace_simulator::{Fit, unread_bytes};
use serde::Serialize;
use serde_json::json;

use super::segments::{self, Segment};
use super::{Outcome, SimulateError};

/// Makes the decisions of every segment again, up to the first one that differs.
pub fn replay(path: &Path, json: bool) -> Result<Outcome, SimulateError> {
    let mut lines = Vec::new();
    let mut failure = None;
    for segment in segments::read(path)? {
        let (line, reason) = Line::of(&segment);
        lines.push(line);
        if let Some(reason) = reason {
            failure = Some(SimulateError::Replay { path: segment.path, reason });
            break;
        }
    }
    let text = if json { as_json(&lines, failure.as_ref()) } else { as_table(&lines, failure.is_none()) };
    Ok(Outcome { text, failure })
}

/// What came of a segment.
#[derive(Serialize)]
struct Line {
    file: String,
    /// Both up to the first difference; `null` where there is one.
    records: Option<usize>,
    plans: Option<u64>,
    same: bool,
    /// At the end: no whole record any more.
    unread_bytes: usize,
}

impl Line {
    fn of(segment: &Segment) -> (Self, Option<ReplayError>) {
        let (replayed, reason) = match trace::replay(&segment.bytes) {
            Ok(replayed) => (Some(replayed), None),
            Err(reason) => (None, Some(reason)),
        };
        let (records, plans) = replayed.map(|Replayed { records, plans }| (records, plans)).unzip();
        let (file, unread_bytes) = (segment.path.display().to_string(), unread_bytes(&segment.bytes));
        (Self { file, records, plans, same: reason.is_none(), unread_bytes }, reason)
    }

    fn text(&self) -> String {
        let Self { file, records, plans, unread_bytes, .. } = self;
        let mut text = match (records, plans) {
            (Some(records), Some(plans)) => {
                format!("{file}: {records} records, {plans} plans: the same, byte for byte")
            }
            _ => format!("{file}: not the same"),
        };
        if *unread_bytes > 0 {
            let _ = write!(text, "; {unread_bytes} bytes at its end are no whole record");
        }
        text
    }
}

fn as_table(lines: &[Line], same: bool) -> String {
    let mut text = lines.iter().fold(String::new(), |text, line| text + &line.text() + "\n");
    if same {
        let plans: u64 = lines.iter().filter_map(|line| line.plans).sum();
        let _ = writeln!(text, "{plans} plans of {} segments: byte for byte", lines.len());
    }
    text
}

fn as_json(lines: &[Line], failure: Option<&SimulateError>) -> String {
    let difference = match failure {
        Some(SimulateError::Replay { reason: ReplayError::Difference(difference), .. }) => json!({
            "record": difference.record, "recorded": difference.recorded, "now": difference.now,
        }),
        _ => json!(null),
    };
    let failure = failure.map(ToString::to_string);
    let value = json!({ "segments": lines, "same": failure.is_none(), "difference": difference, "failure": failure });
    format!("{value}\n")
}

/// A cost model of a trace's steps, to standard output or into a file.
pub fn fit(trace: &Path, output: Option<&Path>, json: bool) -> Result<String, SimulateError> {
    let recording = segments::recording(trace)?;
    let fit = Fit::of(&recording).map_err(|reason| SimulateError::Fit { path: trace.to_owned(), reason })?;
    let toml = commented(&fit, trace);
    if let Some(path) = output {
        fs::write(path, &toml).map_err(|reason| SimulateError::Write { path: path.to_owned(), reason })?;
    }
    Ok(match (json, output) {
        (true, _) => format!("{}\n", fit.json()),
        (false, Some(_)) => summary(&fit) + "\n",
        (false, None) => toml,
    })
}

fn commented(fit: &Fit, trace: &Path) -> String {
    let trace = trace.file_name().unwrap_or_default().to_string_lossy().replace(char::is_control, "");
    format!("# Fitted to {trace}: {}\n{}", summary(fit), fit.model.to_toml())
}

pub fn summary(fit: &Fit) -> String {
    let quality = &fit.quality;
    format!(
        "{} steps ({} outliers left out), error of a step's time: mean {:.1} %, p99 {:.1} %",
        quality.steps, quality.outliers, quality.mean_error_percent, quality.p99_error_percent
    )
}
