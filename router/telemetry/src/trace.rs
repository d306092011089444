//! A trace's spans as they are exported: plain values, turned into OTLP's messages.

use std::time::SystemTime;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{self as otlp, ResourceSpans, ScopeSpans, Status, status::StatusCode};

use crate::trace_context::{SpanId, TraceId};

/// All spans of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub id: TraceId,
    /// Passed on from the caller; often empty.
    pub state: String,
    pub spans: Vec<Span>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub name: String,
    pub kind: SpanKind,
    pub began: SystemTime,
    pub ended: SystemTime,
    pub attributes: Vec<(&'static str, Value)>,
    /// Why what it stands for failed.
    pub error: Option<String>,
}

/// Which side of a call a span stands for. It also says whose it is: all but `Shard` are the router's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Answering a client.
    Server,
    /// Within the router.
    Internal,
    /// Having the shard compute.
    Client,
    /// The shard computing.
    Shard,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Whole(i64),
    Number(f64),
}

/// Whose spans these are.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub name: String,
    pub version: String,
}

impl TraceId {
    /// A trace of its own.
    pub fn draw() -> Self {
        Self(rand::random::<u128>().max(1).to_be_bytes())
    }
}

impl SpanId {
    pub fn draw() -> Self {
        Self(rand::random::<u64>().max(1).to_be_bytes())
    }
}

impl Service {
    /// The shard is a service of its own in a trace: a map of services shows both.
    fn shard_name(&self) -> String {
        format!("{}.shard", self.name.strip_suffix(".router").unwrap_or(&self.name))
    }

    fn resource(&self, name: String) -> Resource {
        let attributes = vec![
            attribute("service.name", Value::Text(name)),
            attribute("service.version", Value::Text(self.version.clone())),
        ];
        Resource { attributes, ..Resource::default() }
    }
}

/// One message for all of these traces.
pub(crate) fn request(traces: Vec<Trace>, service: &Service) -> ExportTraceServiceRequest {
    let (mut router, mut shard) = (Vec::new(), Vec::new());
    for Trace { id, state, spans } in traces {
        for span in spans {
            let side = if span.kind == SpanKind::Shard { &mut shard } else { &mut router };
            side.push(message(span, id, &state));
        }
    }
    let sides = [(service.name.clone(), router), (service.shard_name(), shard)];
    let resource_spans = sides.into_iter().filter(|(_, spans)| !spans.is_empty());
    let resource_spans = resource_spans.map(|(name, spans)| ResourceSpans {
        resource: Some(service.resource(name)),
        scope_spans: vec![ScopeSpans {
            scope: Some(InstrumentationScope { name: "headrace".to_owned(), ..InstrumentationScope::default() }),
            spans,
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    });
    ExportTraceServiceRequest { resource_spans: resource_spans.collect() }
}

fn message(span: Span, trace: TraceId, state: &str) -> otlp::Span {
    let kind = match span.kind {
        SpanKind::Server | SpanKind::Shard => otlp::span::SpanKind::Server,
        SpanKind::Internal => otlp::span::SpanKind::Internal,
        SpanKind::Client => otlp::span::SpanKind::Client,
    };
    let status = span.error.map(|message| Status { message, code: StatusCode::Error as i32 });
    otlp::Span {
        trace_id: trace.0.to_vec(),
        span_id: span.id.0.to_vec(),
        trace_state: state.to_owned(),
        parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.0.to_vec()),
        name: span.name,
        kind: kind as i32,
        start_time_unix_nano: unix_nanos(span.began),
        end_time_unix_nano: unix_nanos(span.ended.max(span.began)),
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        status,
        ..otlp::Span::default()
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::StringValue(text),
        Value::Whole(number) => Any::IntValue(number),
        Value::Number(number) => Any::DoubleValue(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn unix_nanos(moment: SystemTime) -> u64 {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
