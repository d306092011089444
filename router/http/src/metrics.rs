//! Handles of the metrics of requests, and the recorder behind `GET /metrics`.

use std::time::Duration;

use headrace_telemetry::{Counter, Histogram, InstallMetricsError, Lengths, MetricsHandle, table};

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
    pub refused: Counter,
    pub refused_by_shutdown: Counter,
    pub success: Counter,
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
pub(crate) enum Outcome {
    Success,
    /// Its own fault, or there is too much to do.
    Refused,
    Failure,
    /// Its client left, or took nothing for too long.
    Cancelled,
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

    /// Counts a failure; `err` is one of a few fixed words.
    pub fn failure(&self, err: &'static str) {
        table::REQUEST_FAILURE.of(err).increment(1);
    }

    /// A request ended, `total` after its body was there.
    pub fn ended(&self, outcome: Outcome, total: Duration) {
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
