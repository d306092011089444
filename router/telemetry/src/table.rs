//! Every metric there is: the one source of names, types, units, labels and help texts.
//!
//! The rows whose names begin with `tgi_` have the names, types, labels and buckets of Text Generation Inference 3.3.6;
//! dashboards and autoscalers read them. No label has an open set of values: nothing here grows with tenants or requests.
//! `docs/reference/metrics.md` is this table, written by `make reference`.

use crate::buckets::Buckets;
use crate::metric::Unit::{Blocks, Info, Ratio, Requests, Rows, Seconds, Spans, Steps, Tokens, Viewers};
use crate::metric::{CounterFamily, GaugeFamily, HistogramFamily, Label, Metric, Values};

macro_rules! table {
    ($($name:ident: $family:ident = $row:expr;)*) => {
        $(pub static $name: $family = $row;)*

        /// All rows, in the order of the documentation.
        pub static TABLE: &[&Metric] = &[$(&$name.0),*];
    };
}

table! {
    REQUEST_COUNT: CounterFamily =
        CounterFamily::new("tgi_request_count", Requests, "Requests to generate that arrived, refused ones included");
    REQUEST_SUCCESS: CounterFamily = CounterFamily::new("tgi_request_success", Requests, "Requests answered in full");
    REQUEST_FAILURE: CounterFamily = CounterFamily::new(
        "tgi_request_failure",
        Requests,
        "Requests to generate that failed, by how, refused ones included; dropped: the client left, slow_reader: it took \
         nothing for too long",
    )
    .by(&[Label { name: "err", values: Values::Fixed(FAILURES) }]);
    REQUEST_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_request_duration",
        Seconds,
        Buckets::Durations,
        "From the request's body to its last token, of requests answered in full",
    );
    REQUEST_VALIDATION_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_request_validation_duration",
        Seconds,
        Buckets::Durations,
        "Checking and tokenizing",
    );
    REQUEST_QUEUE_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_request_queue_duration",
        Seconds,
        Buckets::Durations,
        "Waiting for a row of the batch",
    );
    REQUEST_INFERENCE_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_request_inference_duration",
        Seconds,
        Buckets::Durations,
        "From the first step to the last token",
    );
    REQUEST_MEAN_TIME_PER_TOKEN_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_request_mean_time_per_token_duration",
        Seconds,
        Buckets::Durations,
        "Inference time of a request divided by its generated tokens",
    );
    REQUEST_INPUT_LENGTH: HistogramFamily = HistogramFamily::new(
        "tgi_request_input_length",
        Tokens,
        Buckets::PromptLengths,
        "Tokens of the prompt",
    );
    REQUEST_MAX_NEW_TOKENS: HistogramFamily = HistogramFamily::new(
        "tgi_request_max_new_tokens",
        Tokens,
        Buckets::TotalLengths,
        "Most tokens the answer may have",
    );
    REQUEST_GENERATED_TOKENS: HistogramFamily = HistogramFamily::new(
        "tgi_request_generated_tokens",
        Tokens,
        Buckets::TotalLengths,
        "Tokens of the answer",
    );
    REQUEST_SKIPPED_TOKENS: HistogramFamily = HistogramFamily::summary(
        "tgi_request_skipped_tokens",
        Tokens,
        "Tokens beyond the first that a step brought",
    );
    QUEUE_SIZE: GaugeFamily = GaugeFamily::new("tgi_queue_size", Requests, "Requests that wait for a row of the batch");
    BATCH_CURRENT_SIZE: GaugeFamily =
        GaugeFamily::new("tgi_batch_current_size", Requests, "Requests that hold a row of the batch");
    BATCH_CURRENT_MAX_TOKENS: GaugeFamily = GaugeFamily::new(
        "tgi_batch_current_max_tokens",
        Tokens,
        "Prompt and answer tokens, at most, of what runs",
    );
    BATCH_MAX_TOTAL_TOKENS: GaugeFamily =
        GaugeFamily::new("tgi_batch_max_total_tokens", Tokens, "Tokens that the KV pool holds");
    BATCH_NEXT_SIZE: HistogramFamily = HistogramFamily::new(
        "tgi_batch_next_size",
        Requests,
        Buckets::EverySize,
        "Requests that joined the batch in one step",
    );
    BATCH_CONCAT: CounterFamily =
        CounterFamily::new("tgi_batch_concat", Steps, "Steps in which prompts joined rows that ran already")
            .by(&[Label { name: "reason", values: Values::Fixed(&["backpressure", "wait_exceeded", "chunking"]) }]);
    BATCH_CONCAT_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_batch_concat_duration",
        Seconds,
        Buckets::Durations,
        "Planning a step in which prompts joined rows that ran already",
    )
    .by(&[Label { name: "method", values: Values::Fixed(&["decode"]) }]);
    BATCH_INFERENCE_COUNT: CounterFamily =
        CounterFamily::new("tgi_batch_inference_count", Steps, "Steps sent").by(METHOD);
    BATCH_INFERENCE_SUCCESS: CounterFamily =
        CounterFamily::new("tgi_batch_inference_success", Steps, "Steps whose result came").by(METHOD);
    BATCH_INFERENCE_FAILURE: CounterFamily =
        CounterFamily::new("tgi_batch_inference_failure", Steps, "Steps that failed as a whole").by(METHOD);
    BATCH_INFERENCE_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_batch_inference_duration",
        Seconds,
        Buckets::Durations,
        "A step as seen from the router",
    )
    .by(METHOD);
    BATCH_FORWARD_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_batch_forward_duration",
        Seconds,
        Buckets::Durations,
        "A step's forward pass on the shard",
    )
    .by(METHOD);
    BATCH_DECODE_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_batch_decode_duration",
        Seconds,
        Buckets::Durations,
        "Turning a step's tokens into text and updates",
    )
    .by(METHOD);
    BATCH_FILTER_DURATION: HistogramFamily = HistogramFamily::new(
        "tgi_batch_filter_duration",
        Seconds,
        Buckets::Durations,
        "Telling the shard which rows ended",
    )
    .by(&[Label { name: "method", values: Values::Fixed(&["decode"]) }]);

    TIME_TO_FIRST_TOKEN: HistogramFamily = HistogramFamily::new(
        "headrace_time_to_first_token_seconds",
        Seconds,
        Buckets::Durations,
        "TTFT: from the request's body to its first token, whatever became of it later",
    );
    INTER_TOKEN_LATENCY: HistogramFamily = HistogramFamily::new(
        "headrace_inter_token_latency_seconds",
        Seconds,
        Buckets::Durations,
        "ITL: between two tokens of one answer",
    );
    END_TO_END: HistogramFamily = HistogramFamily::new(
        "headrace_request_duration_seconds",
        Seconds,
        Buckets::Durations,
        "End to end: from the request's body to its end, by how it ended; 0 where it was refused before its body was there",
    )
    .by(&[Label { name: "outcome", values: Values::Fixed(&["success", "refused", "failure", "cancelled"]) }]);
    RUNNING_REQUESTS: GaugeFamily =
        GaugeFamily::new("headrace_running_requests", Requests, "Requests that hold a row of the batch");
    WAITING_REQUESTS: GaugeFamily =
        GaugeFamily::new("headrace_waiting_requests", Requests, "Requests that wait for a row of the batch");
    QUEUE_TOKENS: GaugeFamily = GaugeFamily::new(
        "headrace_queue_tokens",
        Tokens,
        "Tokens that waiting requests have to compute first",
    );
    PREDICTED_DRAIN: GaugeFamily =
        GaugeFamily::new("headrace_predicted_drain_seconds", Seconds, "Until those that wait now have a row");
    KV_BLOCKS: GaugeFamily = GaugeFamily::new(
        "headrace_kv_blocks",
        Blocks,
        "KV blocks of the pool: held by requests (used), cached (held by nobody, kept for those that begin alike), free",
    )
    .by(&[Label { name: "state", values: Values::Fixed(&["held", "cached", "free"]) }]);
    KV_USAGE: GaugeFamily =
        GaugeFamily::new("headrace_kv_usage_ratio", Ratio, "Share of the KV pool's blocks that requests hold");
    HOST_BLOCKS_USED: GaugeFamily = GaugeFamily::new(
        "headrace_host_blocks_used",
        Blocks,
        "Blocks of host memory that hold a preempted request's KV (--swap-space)",
    );
    PROMPT_TOKENS: CounterFamily = CounterFamily::new(
        "headrace_prompt_tokens_total",
        Tokens,
        "Prompt tokens of requests that were taken, cached ones included",
    );
    GENERATED_TOKENS: CounterFamily =
        CounterFamily::new("headrace_generated_tokens_total", Tokens, "Tokens that were sampled for answers");
    PREFIX_LOOKUP_TOKENS: CounterFamily = CounterFamily::new(
        "headrace_prefix_lookup_tokens_total",
        Tokens,
        "Tokens looked for in the prefix cache",
    );
    PREFIX_HIT_TOKENS: CounterFamily =
        CounterFamily::new("headrace_prefix_hit_tokens_total", Tokens, "Those of them whose KV was there");
    PREFIX_EVICTED_BLOCKS: CounterFamily = CounterFamily::new(
        "headrace_prefix_evicted_blocks_total",
        Blocks,
        "Cached KV blocks given to other tokens",
    );
    PREEMPTIONS: CounterFamily = CounterFamily::new(
        "headrace_preemptions_total",
        Requests,
        "Requests put back to wait because blocks ran out",
    );
    RECOMPUTED_TOKENS: CounterFamily =
        CounterFamily::new("headrace_recomputed_tokens_total", Tokens, "Tokens computed again after a preemption");
    SWAPPED_BLOCKS: CounterFamily = CounterFamily::new(
        "headrace_swapped_blocks_total",
        Blocks,
        "KV blocks of preempted requests copied to host memory instead, to be copied back",
    );
    CANCELLATIONS: CounterFamily =
        CounterFamily::new("headrace_cancellations_total", Requests, "Generations cancelled, by cause")
            .by(&[Label { name: "cause", values: Values::Fixed(&["client_left", "slow_reader", "timeout"]) }]);
    REJECTIONS: CounterFamily = CounterFamily::new(
        "headrace_rejections_total",
        Requests,
        "Requests refused for load, by cause: too many requests, too many tokens in the queue, a deadline that cannot be \
         met, the place given to a tenant below its share, a server that shuts down",
    )
    .by(&[Label {
        name: "cause",
        values: Values::Fixed(&["requests", "queue_tokens", "deadline", "displaced", "shutting_down"]),
    }]);
    DEADLINES_MISSED: CounterFamily = CounterFamily::new(
        "headrace_deadlines_missed_total",
        Requests,
        "Requests dropped from the queue at their deadline",
    );
    STEP_DURATION: HistogramFamily = HistogramFamily::new(
        "headrace_step_duration_seconds",
        Seconds,
        Buckets::Durations,
        "Forward pass and sampling of a step on the shard; prefill: it has prompt chunks, decode: it has none",
    )
    .by(KIND);
    STEP_OVERHEAD: HistogramFamily = HistogramFamily::new(
        "headrace_step_overhead_seconds",
        Seconds,
        Buckets::Durations,
        "Time of a step in which the shard computed nothing: the router between two steps, and the way there and back",
    )
    .by(KIND);
    STEP_ROWS: HistogramFamily = HistogramFamily::new(
        "headrace_step_rows",
        Rows,
        Buckets::Doubling,
        "Batch size of a step: rows with a prompt chunk or a decode",
    );
    STEP_TOKENS: HistogramFamily =
        HistogramFamily::new("headrace_step_tokens", Tokens, Buckets::Doubling, "Tokens of a step's forward pass");
    SHARD_HOP: GaugeFamily = GaugeFamily::new(
        "headrace_shard_hop_seconds",
        Seconds,
        "Smoothed overhead of the way to the shard and back",
    );
    SCHEDULING_POLICY: GaugeFamily =
        GaugeFamily::new("headrace_scheduling_policy_info", Info, "Who is next among waiting requests")
            .by(&[Label { name: "policy", values: Values::OneOfAProcess }]);
    SERVER_INFO: GaugeFamily = GaugeFamily::new("headrace_server_info", Info, "What this server runs").by(&[
        Label { name: "version", values: Values::OneOfAProcess },
        Label { name: "model", values: Values::OneOfAProcess },
        Label { name: "dtype", values: Values::OneOfAProcess },
        Label { name: "device", values: Values::OneOfAProcess },
    ]);
    START_TIME: GaugeFamily =
        GaugeFamily::new("process_start_time_seconds", Seconds, "When the process started, since the Unix epoch");
    LIVE_VIEWERS: GaugeFamily = GaugeFamily::new("headrace_live_viewers", Viewers, "Who watches the live view");
    TRACE_SPANS: CounterFamily = CounterFamily::new(
        "headrace_trace_spans_total",
        Spans,
        "Spans of traces: exported, or dropped because too many waited (queue_full) or the endpoint did not take them",
    )
    .by(&[Label { name: "outcome", values: Values::Fixed(&["exported", "queue_full", "export_failed"]) }]);
}

/// How requests fail: values of `err`. The first are TGI's.
const FAILURES: &[&str] = &[
    "validation",
    "overloaded",
    "generation",
    "incomplete",
    "template",
    "dropped",
    "slow_reader",
    "shutting_down",
    "loading",
    "bad_request",
    "unauthorized",
    "timeout",
    "unsupported_media_type",
    "payload_too_large",
    "request_timeout",
    "not_found",
    "internal",
];

const METHOD: &[Label] = &[Label { name: "method", values: Values::Fixed(STEP_KINDS) }];
const KIND: &[Label] = &[Label { name: "kind", values: Values::Fixed(STEP_KINDS) }];
const STEP_KINDS: &[&str] = &["prefill", "decode"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Kind;

    /// As TGI 3.3.6 shows them after some requests.
    const TGI: &[(&str, &str, &[&str])] = &[
        ("tgi_batch_concat", "counter", &["reason"]),
        ("tgi_batch_concat_duration", "histogram", &["method"]),
        ("tgi_batch_current_max_tokens", "gauge", &[]),
        ("tgi_batch_current_size", "gauge", &[]),
        ("tgi_batch_decode_duration", "histogram", &["method"]),
        ("tgi_batch_filter_duration", "histogram", &["method"]),
        ("tgi_batch_forward_duration", "histogram", &["method"]),
        ("tgi_batch_inference_count", "counter", &["method"]),
        ("tgi_batch_inference_duration", "histogram", &["method"]),
        ("tgi_batch_inference_failure", "counter", &["method"]),
        ("tgi_batch_inference_success", "counter", &["method"]),
        ("tgi_batch_max_total_tokens", "gauge", &[]),
        ("tgi_batch_next_size", "histogram", &[]),
        ("tgi_queue_size", "gauge", &[]),
        ("tgi_request_count", "counter", &[]),
        ("tgi_request_duration", "histogram", &[]),
        ("tgi_request_failure", "counter", &["err"]),
        ("tgi_request_generated_tokens", "histogram", &[]),
        ("tgi_request_inference_duration", "histogram", &[]),
        ("tgi_request_input_length", "histogram", &[]),
        ("tgi_request_max_new_tokens", "histogram", &[]),
        ("tgi_request_mean_time_per_token_duration", "histogram", &[]),
        ("tgi_request_queue_duration", "histogram", &[]),
        ("tgi_request_skipped_tokens", "summary", &[]),
        ("tgi_request_success", "counter", &[]),
        ("tgi_request_validation_duration", "histogram", &[]),
    ];

    #[test]
    fn tgis_names_have_tgis_types_and_labels() {
        let mut ours: Vec<_> = TABLE.iter().filter(|metric| metric.name.starts_with("tgi_")).collect();
        ours.sort_by_key(|metric| metric.name);
        let ours: Vec<_> = ours
            .iter()
            .map(|metric| (metric.name, metric.kind.name(), metric.labels.iter().map(|label| label.name).collect()))
            .collect();
        let tgi: Vec<(&str, &str, Vec<&str>)> =
            TGI.iter().map(|&(name, kind, labels)| (name, kind, labels.to_vec())).collect();
        assert_eq!(ours, tgi);
    }

    #[test]
    fn tgis_histograms_have_tgis_buckets() {
        for metric in TABLE.iter().filter(|metric| metric.name.starts_with("tgi_")) {
            let expected = match metric.name {
                name if name.ends_with("_duration") => Buckets::Durations,
                "tgi_request_input_length" => Buckets::PromptLengths,
                "tgi_request_max_new_tokens" | "tgi_request_generated_tokens" => Buckets::TotalLengths,
                "tgi_batch_next_size" => Buckets::EverySize,
                _ => continue,
            };
            assert_eq!(metric.kind, Kind::Histogram(expected), "{}", metric.name);
        }
    }

    #[test]
    fn our_own_names_say_their_unit_as_prometheus_recommends() {
        for metric in TABLE.iter().filter(|metric| metric.name.starts_with("headrace_")) {
            let counter = metric.kind == Kind::Counter;
            assert_eq!(metric.name.ends_with("_total"), counter, "{}", metric.name);
            let ending = match metric.unit {
                Seconds => "_seconds",
                Ratio => "_ratio",
                Info => "_info",
                _ => continue,
            };
            assert!(metric.name.ends_with(ending), "{}", metric.name);
        }
    }

    #[test]
    fn no_name_is_there_twice_and_each_has_a_sentence() {
        let mut names: Vec<_> = TABLE.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        for metric in TABLE {
            assert!(metric.help.len() >= 10 && !metric.help.ends_with('.'), "{}", metric.name);
        }
    }
}
