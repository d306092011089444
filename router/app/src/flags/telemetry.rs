//! Flags about what a server tells its operator.

use clap::Args;

/// Where metrics are read.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics")]
pub struct TelemetryFlags {
    /// Port that shows /metrics besides --port: for scrapers that must not reach the server itself. 0 takes a free one,
    /// and the log says which. One that is in use, as by another server of this machine, is a warning.
    #[arg(long, env, value_name = "PORT", default_value_t = 9000)]
    pub prometheus_port: u16,
}
