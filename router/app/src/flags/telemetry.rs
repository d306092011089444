//! Flags about what a server tells its operator.

use clap::Args;

/// Where metrics are read, and where traces go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics and traces")]
pub struct TelemetryFlags {
    /// Port that shows /metrics besides --port: for scrapers that must not reach the server itself. 0 takes a free one,
    /// and the log says which. One that is in use, as by another server of this machine, is a warning.
    #[arg(long, env, value_name = "PORT", default_value_t = 9000)]
    pub prometheus_port: u16,
    /// http://HOST:PORT of a collector that takes OTLP over gRPC: one trace per request, unless its client sends a
    /// traceparent that says not to record it. A collector that is down costs traces and nothing else. Default: none.
    #[arg(long, env, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// What this server is called in traces. Its shard is called the same, without `.router` and with `.shard`.
    #[arg(long, env, value_name = "NAME", default_value = "text-generation-inference.router")]
    pub otlp_service_name: String,
}
