//! The process's recorder: takes what is recorded, renders Prometheus' text.

use std::thread;
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::buckets::Lengths;
use crate::metric::{Kind, Label, Values};
use crate::table::TABLE;

/// The media type of what [`MetricsHandle::render`] gives.
pub const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

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
/// No port is opened: whoever has the handle renders.
pub fn install(lengths: Lengths) -> Result<MetricsHandle, InstallMetricsError> {
    let handle = builder(lengths)?.install_recorder()?;
    let upkeep = handle.clone();
    // Samples pile up until they are rendered or this runs: nobody may be scraping.
    thread::Builder::new().name("metrics-upkeep".into()).spawn(move || {
        loop {
            thread::sleep(UPKEEP_PERIOD);
            upkeep.run_upkeep();
        }
    })?;
    describe();
    count_from_zero();
    Ok(MetricsHandle(handle))
}

fn builder(lengths: Lengths) -> Result<PrometheusBuilder, BuildError> {
    TABLE.iter().try_fold(PrometheusBuilder::new(), |builder, metric| match metric.kind {
        Kind::Histogram(buckets) => {
            builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), &buckets.bounds(lengths))
        }
        Kind::Counter | Kind::Gauge | Kind::Summary => Ok(builder),
    })
}

/// Without units: the exporter would put them into the names.
fn describe() {
    for metric in TABLE {
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, metric.help),
            Kind::Gauge => describe_gauge!(metric.name, metric.help),
            Kind::Histogram(_) | Kind::Summary => describe_histogram!(metric.name, metric.help),
        }
    }
}

/// A counter that appears with its first event has no rate for it: each is there from the start.
fn count_from_zero() {
    for metric in TABLE.iter().filter(|metric| metric.kind == Kind::Counter) {
        match metric.labels {
            [Label { name, values: Values::Fixed(values) }] => {
                values.iter().for_each(|value| drop(counter!(metric.name, *name => *value)));
            }
            _ => drop(counter!(metric.name)),
        }
    }
}

const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    const LENGTHS: Lengths = Lengths { max_input_tokens: 1000, max_total_tokens: 1024 };

    /// What a scrape shows after `record`.
    fn scrape(record: impl FnOnce()) -> String {
        let recorder = builder(LENGTHS).unwrap().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            describe();
            record();
        });
        handle.render()
    }

    #[track_caller]
    fn assert_line(shown: &str, line: &str) {
        assert!(shown.lines().any(|shown| shown == line), "no line {line:?} in\n{shown}");
    }

    #[test]
    fn a_scrape_shows_names_types_labels_and_help_of_the_table() {
        let shown = scrape(|| {
            table::REQUEST_COUNT.handle().increment(1);
            table::REQUEST_FAILURE.of("validation").increment(1);
            table::REQUEST_DURATION.handle().record(0.1);
            table::REQUEST_SKIPPED_TOKENS.handle().record(0.0);
            table::QUEUE_SIZE.handle().set(3.0);
            table::SERVER_INFO.of_all(&["1.0", "org/model", "float32", "cpu"]).set(1.0);
        });
        for line in [
            "# HELP tgi_request_count Requests to generate that arrived, refused ones included",
            "# TYPE tgi_request_count counter",
            "tgi_request_count 1",
            "# TYPE tgi_request_failure counter",
            "tgi_request_failure{err=\"validation\"} 1",
            "# TYPE tgi_request_duration histogram",
            "tgi_request_duration_bucket{le=\"+Inf\"} 1",
            "# TYPE tgi_request_skipped_tokens summary",
            "# TYPE tgi_queue_size gauge",
            "tgi_queue_size 3",
            "headrace_server_info{version=\"1.0\",model=\"org/model\",dtype=\"float32\",device=\"cpu\"} 1",
        ] {
            assert_line(&shown, line);
        }
    }

    #[test]
    fn a_metric_is_there_from_the_start_and_not_only_when_something_happened() {
        let shown = scrape(|| {
            count_from_zero();
            drop(table::TIME_TO_FIRST_TOKEN.handle());
        });
        assert_line(&shown, "tgi_request_success 0");
        assert_line(&shown, "tgi_request_failure{err=\"generation\"} 0");
        assert_line(&shown, "headrace_time_to_first_token_seconds_count 0");
    }
}
