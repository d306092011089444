//! What a command has measured, and where.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::report::Report;
use crate::sweep::Sweep;

#[derive(Clone, Debug)]
pub enum Outcome {
    Run(Box<Report>),
    Sweep(Sweep),
}

/// What a reader needs to judge figures, or to get them again.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// The command line, without secrets.
    pub command: String,
    /// When it began.
    pub started: String,
    /// On what the client ran.
    pub machine: String,
    /// The client's version.
    pub version: String,
}

impl Outcome {
    pub fn reports(&self) -> Vec<&Report> {
        match self {
            Self::Run(report) => vec![report],
            Self::Sweep(sweep) => sweep.points.iter().map(|point| &point.report).collect(),
        }
    }

    /// One line: a run's figures, or a sweep's; `origin` beside them.
    pub fn json(&self, origin: &Origin) -> String {
        let figures = match self {
            Self::Run(report) => serde_json::to_value(report),
            Self::Sweep(sweep) => serde_json::to_value(sweep),
        };
        let mut figures = figures.expect("numbers and strings, and keys that are strings");
        if let Value::Object(figures) = &mut figures {
            figures.insert("origin".into(), json!(origin));
        }
        figures.to_string()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(report) => report.fmt(f),
            Self::Sweep(sweep) => sweep.fmt(f),
        }
    }
}
