//! TGI's `x-*` headers: names and units are what dashboards read. `x-cached-tokens` is ours.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use headrace_scheduler::Tokens;

use crate::call::Times;
use crate::state::ServerState;

/// What an answer took and brought.
pub(crate) struct Counts {
    /// Characters of the prompt as it was sent.
    pub characters: usize,
    /// Tokens of the prompt.
    pub input: usize,
    /// Those of them whose KV was cached.
    pub cached: Tokens,
    /// Tokens of the answer.
    pub generated: Tokens,
}

/// Headers of a whole answer. Times are whole milliseconds, but `x-compute-time`, which is seconds.
pub(crate) fn answered(state: &ServerState, times: &Times, counts: Counts) -> HeaderMap {
    let mut headers = asked(state, counts.characters);
    let mut put = |name, value| headers.insert(HeaderName::from_static(name), value);
    put("x-compute-time", seconds(times.total));
    put("x-total-time", millis(times.total));
    put("x-validation-time", millis(times.validation));
    put("x-queue-time", millis(times.queue));
    put("x-inference-time", millis(times.inference));
    put("x-time-per-token", millis(times.per_token));
    put("x-prompt-tokens", HeaderValue::from(counts.input));
    put("x-cached-tokens", HeaderValue::from(counts.cached.0));
    put("x-generated-tokens", HeaderValue::from(counts.generated.0));
    headers
}

/// Headers that are known before anything was generated.
pub(crate) fn asked(state: &ServerState, characters: usize) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(16);
    if let Some(compute_type) = &state.compute_type {
        headers.insert("x-compute-type", compute_type.clone());
    }
    headers.insert("x-compute-characters", HeaderValue::from(characters));
    headers
}

fn millis(time: Duration) -> HeaderValue {
    HeaderValue::from(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn seconds(time: Duration) -> HeaderValue {
    HeaderValue::from_str(&time.as_secs_f64().to_string()).unwrap_or_else(|_| HeaderValue::from_static("0"))
}
