//! TGI's metric names for requests, their types and buckets, and the recorder behind `GET /metrics`.

use std::thread;
use std::time::Duration;

use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::state::Limits;

/// Renders what all crates recorded.
#[derive(Clone)]
pub struct MetricsHandle(PrometheusHandle);

impl MetricsHandle {
    /// Prometheus' text format.
    pub fn render(&self) -> String {
        self.0.render()
    }
}

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum InstallMetricsError {
    #[error("cannot install the metrics recorder: {0}; install it once, before anything is recorded")]
    Recorder(#[from] BuildError),
    #[error("cannot start the thread that keeps metrics small: {0}; raise the limit of threads")]
    Thread(#[from] std::io::Error),
}

/// Installs the process's recorder. Handles made before are lost, so call it before the engine starts.
///
/// Durations are in seconds with TGI's 35 buckets, lengths in tokens with 100 buckets up to their limit, step sizes in
/// rows or tokens. No port is opened: `GET /metrics` renders.
pub fn install_metrics(limits: &Limits) -> Result<MetricsHandle, InstallMetricsError> {
    let handle = builder(limits)?.install_recorder()?;
    let upkeep = handle.clone();
    // Samples pile up until they are rendered or this runs: nobody may be scraping.
    thread::Builder::new().name("metrics-upkeep".into()).spawn(move || {
        loop {
            thread::sleep(UPKEEP_PERIOD);
            upkeep.run_upkeep();
        }
    })?;
    describe();
    Ok(MetricsHandle(handle))
}

fn builder(limits: &Limits) -> Result<PrometheusBuilder, BuildError> {
    let of_input = linear_buckets(limits.max_input_tokens);
    let of_total = linear_buckets(limits.max_total_tokens);
    let every_size: Vec<f64> = (1..=1024).map(f64::from).collect();
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("duration".into()), &duration_buckets())?
        .set_buckets_for_metric(Matcher::Full("tgi_request_input_length".into()), &of_input)?
        .set_buckets_for_metric(Matcher::Full("tgi_request_max_new_tokens".into()), &of_total)?
        .set_buckets_for_metric(Matcher::Full("tgi_request_generated_tokens".into()), &of_total)?
        .set_buckets_for_metric(Matcher::Full("tgi_batch_next_size".into()), &every_size)?
        .set_buckets_for_metric(Matcher::Full("headrace_step_rows".into()), &doubling_buckets())?
        .set_buckets_for_metric(Matcher::Full("headrace_step_tokens".into()), &doubling_buckets())
}

/// 35 buckets from 0.15 ms, each 1.5 times the one before.
fn duration_buckets() -> Vec<f64> {
    std::iter::successors(Some(0.000_15), |bound| Some(bound * 1.5)).take(35).collect()
}

/// 100 equal buckets up to `limit`.
fn linear_buckets(limit: u32) -> Vec<f64> {
    (1..=100).map(|n| f64::from(limit.max(1)) / 100.0 * f64::from(n)).collect()
}

/// 1, 2, 4, … 32,768: rows or tokens of a step.
fn doubling_buckets() -> Vec<f64> {
    (0..16).map(|power| f64::from(1 << power)).collect()
}

/// Handles of the metrics of requests, made once.
pub(crate) struct RequestMetrics {
    pub count: Counter,
    /// Refused before the scheduler saw them, which counts its own refusals under the same name.
    pub refused: Counter,
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
}

impl RequestMetrics {
    pub fn new() -> Self {
        Self {
            count: counter!("tgi_request_count"),
            refused: counter!("headrace_rejections_total", "cause" => "requests"),
            success: counter!("tgi_request_success"),
            duration: histogram!("tgi_request_duration"),
            validation_duration: histogram!("tgi_request_validation_duration"),
            queue_duration: histogram!("tgi_request_queue_duration"),
            inference_duration: histogram!("tgi_request_inference_duration"),
            mean_time_per_token_duration: histogram!("tgi_request_mean_time_per_token_duration"),
            input_length: histogram!("tgi_request_input_length"),
            max_new_tokens: histogram!("tgi_request_max_new_tokens"),
            generated_tokens: histogram!("tgi_request_generated_tokens"),
            skipped_tokens: histogram!("tgi_request_skipped_tokens"),
        }
    }

    /// Counts a failure; `err` is one of a few fixed words.
    pub fn failure(&self, err: &'static str) {
        counter!("tgi_request_failure", "err" => err).increment(1);
    }
}

fn describe() {
    describe_counter!("tgi_request_count", Unit::Count, "Requests that arrived");
    describe_counter!("tgi_request_success", Unit::Count, "Requests answered in full");
    describe_counter!(
        "tgi_request_failure",
        Unit::Count,
        "Requests that failed; err says how; dropped: the client left, slow_reader: it took nothing for too long"
    );
    describe_histogram!("tgi_request_duration", Unit::Seconds, "From the request's body to its last token");
    describe_histogram!("tgi_request_validation_duration", Unit::Seconds, "Checking and tokenizing");
    describe_histogram!("tgi_request_queue_duration", Unit::Seconds, "Waiting for a row of the batch");
    describe_histogram!("tgi_request_inference_duration", Unit::Seconds, "From the first step to the last token");
    describe_histogram!("tgi_request_mean_time_per_token_duration", Unit::Seconds, "Inference time of a token");
    describe_histogram!("tgi_request_input_length", Unit::Count, "Tokens of the prompt");
    describe_histogram!("tgi_request_max_new_tokens", Unit::Count, "Most tokens the answer may have");
    describe_histogram!("tgi_request_generated_tokens", Unit::Count, "Tokens of the answer");
    describe_histogram!("tgi_request_skipped_tokens", Unit::Count, "Tokens beyond the first that a step brought");
}

const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_tgis_buckets() {
        let buckets = duration_buckets();
        assert_eq!(buckets.len(), 35);
        assert!((buckets[0] - 0.000_15).abs() < 1e-12);
        assert!((buckets[34] - 0.000_15 * 1.5_f64.powi(34)).abs() < 1e-6);
    }

    #[test]
    fn lengths_have_a_hundred_buckets_that_end_at_the_limit() {
        let buckets = linear_buckets(1000);
        assert_eq!((buckets.len(), buckets[0], buckets[99]), (100, 10.0, 1000.0));
    }

    /// Names and types as TGI's /metrics shows them.
    #[test]
    fn types_are_tgis() {
        let recorder = builder(&Limits::default()).unwrap().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            let requests = RequestMetrics::new();
            requests.count.increment(1);
            requests.success.increment(1);
            requests.failure("validation");
            requests.duration.record(0.1);
            requests.input_length.record(5.0);
            requests.skipped_tokens.record(0.0);
            histogram!("tgi_batch_next_size").record(3.0);
        });
        let shown = handle.render();
        for line in [
            "# TYPE tgi_request_count counter",
            "# TYPE tgi_request_success counter",
            "# TYPE tgi_request_failure counter",
            "# TYPE tgi_request_duration histogram",
            "# TYPE tgi_request_input_length histogram",
            "# TYPE tgi_request_skipped_tokens summary",
            "# TYPE tgi_batch_next_size histogram",
            "tgi_request_failure{err=\"validation\"} 1",
            "tgi_request_count 1",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "no line {line:?} in\n{shown}");
        }
    }
}
