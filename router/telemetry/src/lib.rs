//! What a server tells its operator: one table of metrics, and the recorder behind `/metrics`.
//!
//! | file | idea |
//! |---|---|
//! | `metric.rs` | a family of time series: name, type, unit, labels, help; handles are made from it |
//! | `table.rs` | every metric there is: the one source of names |
//! | `buckets.rs` | the bounds of histograms |
//! | `recorder.rs` | installs the recorder and renders Prometheus' text |
//! | `markdown.rs` | the table as documentation |
//! | `trace.rs` | a request's spans, as OTLP's messages |
//! | `exporter.rs` | sends traces, and never makes anybody wait |
//! | `trace_context.rs` | which trace a request belongs to, as its headers say |
//!
//! This crate knows no requests and no steps: engine and http make handles from the table once, and record.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails panics"))]

mod buckets;
mod exporter;
mod markdown;
mod metric;
mod recorder;
pub mod table;
mod trace;
mod trace_context;

pub use buckets::{Buckets, Lengths};
pub use exporter::{BadEndpoint, Exporter, ExporterTask, OtlpConfig};
pub use markdown::markdown;
pub use metric::{CounterFamily, GaugeFamily, HistogramFamily, Kind, Label, Metric, Unit, Values};
pub use metrics::{Counter, Gauge, Histogram};
pub use recorder::{InstallMetricsError, MetricsHandle, PROMETHEUS_TEXT, install};
pub use trace::{Span, SpanKind, Trace, Value};
pub use trace_context::{SpanId, TraceContext, TraceId};
