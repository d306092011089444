//! Handles of the metrics of requests, and the recorder behind `GET /metrics`.

use std::time::Duration;

use headrace_telemetry::{Counter, Histogram, InstallMetricsError, Lengths, MetricsHandle, table};

use crate::error::ApiError;
use crate::state::Limits;

/// Installs the process's recorder, with buckets of lengths up to these limits. Handles made before are lost, so call it
/// before the engine starts.
pub fn install_metrics(limits: &Limits) -> Result<MetricsHandle, InstallMetricsError> {
    let Limits { max_input_tokens, max_total_tokens, .. } = *limits;
    headrace_telemetry::install(Lengths { max_input_tokens, max_total_tokens })
}

/// Made once.
pub(crate) struct RequestMetrics {
    pub count: Counter,
    /// Refused before the scheduler saw them, which counts its own refusals under the same name.
    refused: Counter,
    refused_by_shutdown: Counter,
    success: Counter,
    pub duration: Histogram,
    pub validation_duration: Histogram,
    pub queue_duration: Histogram,
    pub inference_duration: Histogram,
    pub mean_time_per_token_duration: Histogram,
    pub input_length: Histogram,
    pub max_new_tokens: Histogram,
    pub generated_tokens: Histogram,
    pub skipped_tokens: Histogram,
    ends: Ends,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Success,
    /// Its own fault, or there is too much to do, or nobody who could do it.
    Refused,
    Failure,
    /// Its client left, or took nothing for too long.
    Cancelled,
}

impl Outcome {
    fn of(error: &ApiError) -> Self {
        let status = error.status();
        let refused = status.is_client_error() && !matches!(error, ApiError::Generation { .. });
        let elsewhere = matches!(error, ApiError::ShuttingDown | ApiError::Loading { .. });
        if refused || elsewhere { Self::Refused } else { Self::Failure }
    }
}

struct Ends {
    success: Histogram,
    refused: Histogram,
    failure: Histogram,
    cancelled: Histogram,
}

impl RequestMetrics {
    pub fn new() -> Self {
        Self {
            count: table::REQUEST_COUNT.handle(),
            refused: table::REJECTIONS.of("requests"),
            refused_by_shutdown: table::REJECTIONS.of("shutting_down"),
            success: table::REQUEST_SUCCESS.handle(),
            duration: table::REQUEST_DURATION.handle(),
            validation_duration: table::REQUEST_VALIDATION_DURATION.handle(),
            queue_duration: table::REQUEST_QUEUE_DURATION.handle(),
            inference_duration: table::REQUEST_INFERENCE_DURATION.handle(),
            mean_time_per_token_duration: table::REQUEST_MEAN_TIME_PER_TOKEN_DURATION.handle(),
            input_length: table::REQUEST_INPUT_LENGTH.handle(),
            max_new_tokens: table::REQUEST_MAX_NEW_TOKENS.handle(),
            generated_tokens: table::REQUEST_GENERATED_TOKENS.handle(),
            skipped_tokens: table::REQUEST_SKIPPED_TOKENS.handle(),
            ends: Ends {
                success: table::END_TO_END.of("success"),
                refused: table::END_TO_END.of("refused"),
                failure: table::END_TO_END.of("failure"),
                cancelled: table::END_TO_END.of("cancelled"),
            },
        }
    }

    /// A request was answered, `total` after its body was there.
    pub fn succeeded(&self, total: Duration) {
        self.success.increment(1);
        self.ended(Outcome::Success, total);
    }

    /// A request that was counted has no answer but this error.
    pub fn failed(&self, error: &ApiError, total: Duration) {
        table::REQUEST_FAILURE.of(error.failure()).increment(1);
        match error {
            ApiError::Overloaded { .. } => self.refused.increment(1),
            ApiError::ShuttingDown => self.refused_by_shutdown.increment(1),
            _ => {}
        }
        self.ended(Outcome::of(error), total);
    }

    /// A request that wants to generate was refused before its body was read, or while it was: it counts as one that came,
    /// and took no time.
    pub fn refused_early(&self, error: &ApiError) {
        self.count.increment(1);
        self.failed(error, Duration::ZERO);
    }

    /// A request ended because its client was gone; `why` is one of two words.
    pub fn cancelled(&self, why: &'static str, total: Duration) {
        table::REQUEST_FAILURE.of(why).increment(1);
        self.ended(Outcome::Cancelled, total);
    }

    fn ended(&self, outcome: Outcome, total: Duration) {
        let ends = &self.ends;
        let histogram = match outcome {
            Outcome::Success => &ends.success,
            Outcome::Refused => &ends.refused,
            Outcome::Failure => &ends.failure,
            Outcome::Cancelled => &ends.cancelled,
        };
        histogram.record(total);
    }
}
