//! One trace per request, in which a caller's trace goes on: its spans are made when the request has ended.
//!
//! ```text
//! POST /generate          server
//!   validation            checking and tokenizing
//!   queue                 one per generation: until it has a row
//!   prefill               until its first token
//!     shard prefill       what the shard computed of it, in how many steps
//!   decode                until its last token
//!     shard decode
//! ```
//!
//! The shard sends no spans: with each step's result it says how long it waited, computed and sampled, and from that the
//! router places the shard's spans. So a step costs a traced request a few additions, and others nothing.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::http::HeaderMap;
use headrace_engine::{Progress, Reached, ShardWork};
use headrace_telemetry::{Exporter, Span, SpanId, SpanKind, Trace, TraceContext, TraceId, Value};

use crate::error::ApiError;
use crate::request_id::Caller;

/// A request whose trace is exported.
pub(crate) struct RequestTrace {
    exporter: Exporter,
    id: TraceId,
    state: String,
    caller: Option<SpanId>,
    root: SpanId,
    clock: Clock,
    generations: Vec<Arc<Progress>>,
}

/// Moments of this process as moments of the world.
#[derive(Clone, Copy)]
struct Clock {
    received: Instant,
    received_at: SystemTime,
}

/// How a traced request ended.
pub(crate) struct End<'a> {
    pub caller: &'a Caller,
    pub tenant: &'a str,
    pub input_tokens: Option<u32>,
    pub finish_reason: Option<&'static str>,
    pub outcome: Result<(), Why<'a>>,
}

#[derive(Clone, Copy)]
pub(crate) enum Why<'a> {
    Error(&'a ApiError),
    Cancelled(&'static str),
}

/// What the headers say of a trace.
pub(crate) fn context(headers: &HeaderMap) -> Option<TraceContext> {
    let traceparent = headers.get("traceparent")?.to_str().ok()?;
    let states = headers.get_all("tracestate").iter().filter_map(|state| state.to_str().ok());
    TraceContext::read(traceparent, states)
}

impl RequestTrace {
    /// `None`: traces go nowhere, or the caller does not record this one.
    pub fn begin(exporter: Option<&Exporter>, context: Option<&TraceContext>, received: Instant) -> Option<Self> {
        let exporter = exporter.filter(|_| context.is_none_or(|context| context.sampled))?.clone();
        Some(Self {
            exporter,
            id: context.map_or_else(TraceId::draw, |context| context.trace),
            state: context.map_or_else(String::new, |context| context.state.clone()),
            caller: context.map(|context| context.parent),
            root: SpanId::draw(),
            clock: Clock { received, received_at: SystemTime::now() - received.elapsed() },
            generations: Vec::new(),
        })
    }

    pub fn id(&self) -> TraceId {
        self.id
    }

    /// For one more generation of the request.
    pub fn follow(&mut self) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        self.generations.push(progress.clone());
        progress
    }

    /// Hands all spans over.
    pub fn end(self, end: &End<'_>) {
        let ended = Instant::now();
        let reached: Vec<Reached> = self.generations.iter().map(|progress| progress.reached()).collect();
        let mut spans = Spans { clock: self.clock, ended, made: Vec::with_capacity(2 + 5 * reached.len()) };
        let name = format!("POST {}", end.caller.route());
        let root = spans.add(self.caller, &name, SpanKind::Server, self.clock.received, None);
        root.id = self.root;
        root.attributes = attributes(end, &reached);
        root.error = error(end.outcome).map(str::to_owned);
        let validated = reached.iter().filter_map(|reached| reached.submitted).min();
        let validated = validated.map(tokio::time::Instant::into_std);
        spans.add(Some(self.root), "validation", SpanKind::Internal, self.clock.received, validated);
        for (choice, reached) in reached.iter().enumerate() {
            spans.add_generation(self.root, choice, reached);
        }
        self.exporter.send(Trace { id: self.id, state: self.state, spans: spans.made });
    }
}

struct Spans {
    clock: Clock,
    /// When the request did: no part of it ends later.
    ended: Instant,
    made: Vec<Span>,
}

impl Spans {
    /// `until`: `None`, the request's end.
    fn add(
        &mut self,
        parent: Option<SpanId>,
        name: &str,
        kind: SpanKind,
        from: Instant,
        until: Option<Instant>,
    ) -> &mut Span {
        let until = until.unwrap_or(self.ended).min(self.ended);
        let span = Span {
            id: SpanId::draw(),
            parent,
            name: name.to_owned(),
            kind,
            began: self.clock.at(from),
            ended: self.clock.at(until),
            attributes: Vec::new(),
            error: None,
        };
        self.made.push(span);
        let last = self.made.len() - 1;
        &mut self.made[last]
    }

    fn add_generation(&mut self, root: SpanId, choice: usize, reached: &Reached) {
        let moment = |instant: Option<tokio::time::Instant>| instant.map(tokio::time::Instant::into_std);
        let which = ("headrace.choice", Value::Whole(choice as i64));
        let Some(submitted) = moment(reached.submitted) else { return };
        let queue = self.add(Some(root), "queue", SpanKind::Internal, submitted, moment(reached.admitted));
        queue.attributes.push(which.clone());
        let Some(admitted) = moment(reached.admitted) else { return };
        let cached = ("headrace.cached_tokens", whole(reached.cached.0));
        let preemptions = ("headrace.preemptions", whole(reached.preemptions));
        let prefill = self.add(Some(root), "prefill", SpanKind::Client, admitted, moment(reached.first_token));
        prefill.attributes.extend([which.clone(), cached]);
        let prefill = prefill.id;
        self.add_shard(prefill, "shard prefill", &reached.prefill);
        let Some(first_token) = moment(reached.first_token) else { return };
        let decode = self.add(Some(root), "decode", SpanKind::Client, first_token, moment(reached.last_token));
        decode.attributes.extend([which, ("headrace.generated_tokens", whole(reached.generated.0)), preemptions]);
        let decode = decode.id;
        self.add_shard(decode, "shard decode", &reached.decode);
    }

    fn add_shard(&mut self, parent: SpanId, name: &str, work: &ShardWork) {
        let Some((first, last)) = work.span else { return };
        let seconds = |time: std::time::Duration| Value::Number(time.as_secs_f64());
        let span = self.add(Some(parent), name, SpanKind::Shard, first.into_std(), Some(last.into_std()));
        span.attributes = vec![
            ("headrace.steps", whole(work.steps)),
            ("headrace.inbox_seconds", seconds(work.inbox)),
            ("headrace.forward_seconds", seconds(work.forward)),
            ("headrace.sampling_seconds", seconds(work.sampling)),
        ];
    }
}

impl Clock {
    fn at(self, moment: Instant) -> SystemTime {
        self.received_at + moment.saturating_duration_since(self.received)
    }
}

/// Names of OpenTelemetry's conventions where they have one.
fn attributes(end: &End<'_>, reached: &[Reached]) -> Vec<(&'static str, Value)> {
    let text = |text: &str| Value::Text(text.to_owned());
    let mut attributes = vec![
        ("http.request.method", text("POST")),
        ("http.route", text(end.caller.route())),
        ("headrace.request_id", text(end.caller.id())),
        ("headrace.tenant", text(end.tenant)),
        ("gen_ai.usage.output_tokens", whole(reached.iter().map(|reached| reached.generated.0).sum())),
    ];
    attributes.extend(end.input_tokens.map(|tokens| ("gen_ai.usage.input_tokens", whole(tokens))));
    attributes.extend(end.finish_reason.map(|reason| ("gen_ai.response.finish_reasons", text(reason))));
    attributes.extend(error(end.outcome).map(|error| ("error.type", text(error))));
    match end.outcome {
        Ok(()) => attributes.push(("http.response.status_code", Value::Whole(200))),
        Err(Why::Error(error)) => {
            attributes.push(("http.response.status_code", whole(u32::from(error.status().as_u16()))));
        }
        Err(Why::Cancelled(_)) => {}
    }
    attributes
}

/// One of a few words: a sentence might repeat what the client sent.
fn error(outcome: Result<(), Why<'_>>) -> Option<&'static str> {
    match outcome {
        Ok(()) => None,
        Err(Why::Error(error)) => Some(error.failure()),
        Err(Why::Cancelled(why)) => Some(why),
    }
}

fn whole(number: u32) -> Value {
    Value::Whole(i64::from(number))
}
