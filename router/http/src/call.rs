//! One request from its body to its end: the permit it holds, and what is noted when it ends, however it ends.

use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use headrace_engine::{FinishReason, Finished, Observed, Timings};
use headrace_scheduler::Tokens;
use headrace_telemetry::TraceId;

use crate::error::ApiError;
use crate::permits::Permit;
use crate::request_id::Caller;
use crate::state::ServerState;
use crate::terms::HeaderTerms;
use crate::traces::{End, RequestTrace, Why};
use crate::validation::Checked;
use crate::wire::finish_reason_name;

/// A request under way. Dropped before it ended, it counts as left by its client.
pub(crate) struct Call {
    state: ServerState,
    caller: Caller,
    terms: HeaderTerms,
    received: Instant,
    admitted: Option<Admitted>,
    /// While it is traced and has not ended.
    trace: Option<RequestTrace>,
    ended: bool,
}

struct Admitted {
    /// Gives the generations' places back when the call goes.
    _permit: Permit,
    parameters: String,
    /// Tokens of all prompts.
    input: Tokens,
    validation: Duration,
}

/// How the generations of a request ended, together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    /// Of the first that ended.
    pub reason: Option<FinishReason>,
    /// Tokens of all answers.
    pub generated: Tokens,
    /// Cached tokens of the prompt where the first found most; choices of one prompt find each other's.
    pub cached: Tokens,
    /// Of the slowest.
    pub queue: Duration,
    pub inference: Duration,
    pub per_token: Duration,
    /// As details show it.
    pub seed: Option<u64>,
}

impl Summary {
    pub fn of(finished: &Finished, seed: Option<u64>) -> Self {
        let mut summary = Self::new(seed);
        summary.add(finished);
        summary
    }

    /// Of no generation yet.
    pub fn new(seed: Option<u64>) -> Self {
        let (tokens, time) = (Tokens::ZERO, Duration::ZERO);
        Self { reason: None, generated: tokens, cached: tokens, queue: time, inference: time, per_token: time, seed }
    }

    pub fn add(&mut self, finished: &Finished) {
        let Timings { queue, inference, .. } = finished.timings;
        self.reason.get_or_insert(finished.reason);
        self.generated += finished.generated;
        self.cached = self.cached.max(finished.cached);
        self.queue = self.queue.max(queue);
        self.inference = self.inference.max(inference);
        self.per_token = self.per_token.max(inference / finished.generated.0.max(1));
    }
}

/// Where the time of an answered request went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub total: Duration,
    pub validation: Duration,
    pub queue: Duration,
    pub inference: Duration,
    pub per_token: Duration,
}

impl Call {
    pub fn begin(state: ServerState, caller: Caller, terms: HeaderTerms, received: Instant) -> Self {
        state.requests.count.increment(1);
        let trace = RequestTrace::begin(state.traces.as_ref(), caller.trace(), received);
        Self { state, caller, terms, received, admitted: None, trace, ended: false }
    }

    /// The client took nothing of its answer for too long.
    pub fn stalled(&self) -> bool {
        self.caller.stalled()
    }

    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// What the request's headers say.
    pub fn terms(&self) -> &HeaderTerms {
        &self.terms
    }

    pub fn request_id(&self) -> &str {
        self.caller.id()
    }

    pub fn path(&self) -> &str {
        self.caller.route()
    }

    /// When all of its body had arrived.
    pub fn received(&self) -> Instant {
        self.received
    }

    /// What the engine is to measure of one of its generations.
    pub fn observed(&mut self) -> Observed {
        Observed { arrived: Some(self.received.into()), progress: self.trace.as_mut().map(RequestTrace::follow) }
    }

    /// The engine has taken the request. `sizes`: tokens of each prompt, and of its answers at most.
    pub fn admitted(&mut self, permit: Permit, checked: &Checked, sizes: &[(Tokens, Tokens)]) {
        for (input, max_new) in sizes {
            self.state.requests.input_length.record(input.0);
            self.state.requests.max_new_tokens.record(max_new.0);
        }
        self.admitted = Some(Admitted {
            _permit: permit,
            parameters: checked.to_string(),
            input: sizes.iter().fold(Tokens::ZERO, |sum, (input, _)| sum + *input),
            validation: self.received.elapsed(),
        });
    }

    /// The request has its answer.
    pub fn succeeded(&mut self, summary: &Summary) -> Times {
        self.ended = true;
        let times = self.times(summary);
        let requests = &self.state.requests;
        requests.succeeded(times.total);
        requests.duration.record(times.total);
        requests.validation_duration.record(times.validation);
        requests.queue_duration.record(times.queue);
        requests.inference_duration.record(times.inference);
        requests.mean_time_per_token_duration.record(times.per_token);
        requests.generated_tokens.record(summary.generated.0);
        // Without speculation every step brings one token of a request: none is skipped.
        requests.skipped_tokens.record(0.0);
        self.log_success(&times, summary);
        self.end_trace(summary.reason.map(finish_reason_name), Ok(()));
        times
    }

    /// It has its answer, or the error instead of one.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The request has no answer but this error.
    pub fn refuse(&mut self, error: ApiError) -> Response {
        self.failed(&error);
        error.into_response()
    }

    pub fn failed(&mut self, error: &ApiError) {
        self.ended = true;
        self.caller.note();
        self.state.requests.failed(error, self.received.elapsed());
        let (route, request_id, trace_id) = (self.caller.route(), self.caller.id(), self.trace_id());
        let trace_id = trace_id.map(tracing::field::display);
        if matches!(error, ApiError::CutOff) {
            // Not a failure of the server: somebody ended it.
            tracing::warn!(route, request_id, trace_id, error_type = error.error_type(), "Cut off by the shutdown");
        } else if let ApiError::TimedOut { limit } = error {
            // As somebody wished.
            tracing::warn!(route, request_id, error_type = error.error_type(), ?limit, "Given up");
        } else if error.status().is_server_error() || matches!(error, ApiError::Generation { .. }) {
            tracing::error!(route, request_id, trace_id, error_type = error.error_type(), "{error}");
        } else {
            // The sentence may repeat what the client sent: not for logs.
            tracing::info!(route, request_id, trace_id, error_type = error.error_type(), "Refused");
        }
        self.end_trace(None, Err(Why::Error(error)));
    }

    /// Also of a trace that is not exported, where the client named one.
    fn trace_id(&self) -> Option<TraceId> {
        self.trace.as_ref().map(RequestTrace::id).or(self.caller.trace().map(|context| context.trace))
    }

    fn end_trace(&mut self, finish_reason: Option<&'static str>, outcome: Result<(), Why<'_>>) {
        let Some(trace) = self.trace.take() else { return };
        let input_tokens = self.admitted.as_ref().map(|admitted| admitted.input.0);
        trace.end(&End { caller: &self.caller, tenant: self.terms.tenant(), input_tokens, finish_reason, outcome });
    }

    fn times(&self, summary: &Summary) -> Times {
        Times {
            total: self.received.elapsed(),
            validation: self.admitted.as_ref().map_or(Duration::ZERO, |admitted| admitted.validation),
            queue: summary.queue,
            inference: summary.inference,
            per_token: summary.per_token,
        }
    }

    fn log_success(&self, times: &Times, summary: &Summary) {
        let admitted = self.admitted.as_ref();
        tracing::info!(
            route = self.caller.route(),
            request_id = self.caller.id(),
            trace_id = self.trace_id().map(tracing::field::display),
            tenant = self.terms.tenant(),
            parameters = admitted.map(|admitted| admitted.parameters.as_str()),
            input_tokens = admitted.map(|admitted| admitted.input.0),
            cached_tokens = summary.cached.0,
            generated_tokens = summary.generated.0,
            finish_reason = summary.reason.map(finish_reason_name),
            seed = summary.seed,
            total_time = ?times.total,
            validation_time = ?times.validation,
            queue_time = ?times.queue,
            inference_time = ?times.inference,
            time_per_token = ?times.per_token,
            "Success"
        );
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let (route, request_id, trace_id) = (self.caller.route(), self.caller.id(), self.trace_id());
        let trace_id = trace_id.map(tracing::field::display);
        let why = match self.caller.stalled() {
            true => {
                tracing::info!(
                    route,
                    request_id,
                    trace_id,
                    "Cancelled: the client took nothing of its answer for too long"
                );
                "slow_reader"
            }
            false => {
                tracing::info!(route, request_id, trace_id, "Left by the client");
                "dropped"
            }
        };
        self.state.requests.cancelled(why, self.received.elapsed());
        self.end_trace(None, Err(Why::Cancelled(why)));
    }
}
