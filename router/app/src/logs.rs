//! The process's own log: standard error, as text for people or as JSON lines for machines.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogConfig;
use crate::failure::Failure;

/// Libraries whose information is noise to an operator; a filter that names modules overrules this.
const QUIET: &str = "h2=warn,hyper=warn,hyper_util=warn,tonic=warn,tower=warn";

/// Sends logs to standard error from now on. Standard output stays free for the ready lines.
pub fn install(config: &LogConfig) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Logs(error.to_string());
    let filter = EnvFilter::builder().parse(directives(&config.filter)).map_err(|error| failed(&error))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(stderr)
        .with_ansi(config.colors.unwrap_or_else(|| stderr().is_terminal()));
    let registry = tracing_subscriber::registry().with(filter);
    match config.json {
        true => registry.with(lines.json().flatten_event(true)).try_init(),
        false => registry.with(lines.with_target(false)).try_init(),
    }
    .map_err(|error| failed(&error))
}

fn directives(filter: &str) -> String {
    if filter.contains('=') { filter.to_owned() } else { format!("{filter},{QUIET}") }
}
