//! What the engine measures of steps; `load_metrics` has the rest. TGI's names where they exist; handles are made once, never per token.

use std::time::Duration;

use headrace_scheduler::{Micros, PolicyKind, StepPlan};
use headrace_shard::StepTiming;
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::load_metrics::LoadMetrics;
use crate::pacing::Kind;

/// Why a generation was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelCause {
    ClientLeft,
    SlowReader,
}

pub(crate) struct Telemetry {
    pub load: LoadMetrics,
    next_size: Histogram,
    concat_backpressure: Counter,
    concat_chunking: Counter,
    filter_duration: Histogram,
    prefill: StepMetrics,
    decode: StepMetrics,
    step_rows: Histogram,
    step_tokens: Histogram,
    client_left: Counter,
    slow_reader: Counter,
    hop: Gauge,
}

struct StepMetrics {
    count: Counter,
    success: Counter,
    failure: Counter,
    inference_duration: Histogram,
    forward_duration: Histogram,
    decode_duration: Histogram,
    step_duration: Histogram,
}

/// Times of a step whose result has been dealt with.
pub(crate) struct Landed {
    pub kind: Kind,
    pub computed: bool,
    pub timing: StepTiming,
    /// From sending, or from the result before it, to the result.
    pub busy: Micros,
    /// Turning the result into text and updates.
    pub text: Duration,
}

impl Telemetry {
    /// `pool_tokens`: how many tokens the KV pool holds.
    pub(crate) fn new(pool_tokens: u64, policy: PolicyKind) -> Self {
        describe();
        Self {
            load: LoadMetrics::new(pool_tokens, policy),
            next_size: histogram!("tgi_batch_next_size"),
            concat_backpressure: counter!("tgi_batch_concat", "reason" => "backpressure"),
            concat_chunking: counter!("tgi_batch_concat", "reason" => "chunking"),
            filter_duration: histogram!("tgi_batch_filter_duration", "method" => "decode"),
            prefill: StepMetrics::new("prefill"),
            decode: StepMetrics::new("decode"),
            step_rows: histogram!("headrace_step_rows"),
            step_tokens: histogram!("headrace_step_tokens"),
            client_left: counter!("headrace_cancellations_total", "cause" => "client_left"),
            slow_reader: counter!("headrace_cancellations_total", "cause" => "slow_reader"),
            hop: gauge!("headrace_shard_hop_seconds"),
        }
    }

    pub(crate) fn sent(&self, plan: &StepPlan, kind: Kind) {
        self.step(kind).count.increment(1);
        let rows = plan.chunks.len() + plan.decodes.len();
        self.step_rows.record(rows as f64);
        self.step_tokens.record(f64::from(plan.tokens().0));
        let admitted = plan.admitted.len();
        if admitted > 0 {
            self.next_size.record(admitted as f64);
            if rows > admitted {
                self.concat_backpressure.increment(1);
            }
        } else if kind == Kind::Prefill {
            self.concat_chunking.increment(1);
        }
    }

    pub(crate) fn filtered(&self, took: Duration) {
        self.filter_duration.record(took);
    }

    pub(crate) fn landed(&self, landed: &Landed) {
        let metrics = self.step(landed.kind);
        if !landed.computed {
            metrics.failure.increment(1);
            return;
        }
        let micros = |count: u32| Duration::from_micros(u64::from(count));
        metrics.success.increment(1);
        metrics.inference_duration.record(Duration::from_micros(landed.busy.0));
        metrics.forward_duration.record(micros(landed.timing.forward_us));
        metrics.decode_duration.record(landed.text);
        metrics.step_duration.record(micros(landed.timing.forward_us.saturating_add(landed.timing.sampling_us)));
    }

    pub(crate) fn cancelled(&self, cause: CancelCause) {
        match cause {
            CancelCause::ClientLeft => self.client_left.increment(1),
            CancelCause::SlowReader => self.slow_reader.increment(1),
        }
    }

    pub(crate) fn hop(&self, hop: Option<Micros>) {
        if let Some(hop) = hop {
            self.hop.set(hop.0 as f64 / 1e6);
        }
    }

    fn step(&self, kind: Kind) -> &StepMetrics {
        match kind {
            Kind::Prefill => &self.prefill,
            Kind::Decode => &self.decode,
        }
    }
}

impl StepMetrics {
    fn new(method: &'static str) -> Self {
        Self {
            count: counter!("tgi_batch_inference_count", "method" => method),
            success: counter!("tgi_batch_inference_success", "method" => method),
            failure: counter!("tgi_batch_inference_failure", "method" => method),
            inference_duration: histogram!("tgi_batch_inference_duration", "method" => method),
            forward_duration: histogram!("tgi_batch_forward_duration", "method" => method),
            decode_duration: histogram!("tgi_batch_decode_duration", "method" => method),
            step_duration: histogram!("headrace_step_duration", "kind" => method),
        }
    }
}

fn describe() {
    describe_histogram!("tgi_batch_next_size", Unit::Count, "Requests that joined the batch in one step");
    describe_counter!("tgi_batch_concat", Unit::Count, "Steps in which prompts joined rows that ran already");
    describe_counter!("tgi_batch_inference_count", Unit::Count, "Steps sent");
    describe_counter!("tgi_batch_inference_success", Unit::Count, "Steps whose result came");
    describe_counter!("tgi_batch_inference_failure", Unit::Count, "Steps that failed as a whole");
    describe_histogram!("tgi_batch_inference_duration", Unit::Seconds, "A step as seen from the router");
    describe_histogram!("tgi_batch_forward_duration", Unit::Seconds, "A step's forward pass on the shard");
    describe_histogram!("tgi_batch_decode_duration", Unit::Seconds, "Turning a step's tokens into text and updates");
    describe_histogram!("tgi_batch_filter_duration", Unit::Seconds, "Telling the shard which rows ended");
    describe_histogram!("headrace_step_rows", Unit::Count, "Rows of a step: prompt chunks and decodes");
    describe_histogram!("headrace_step_tokens", Unit::Count, "Tokens of a step's forward pass");
    describe_histogram!("headrace_step_duration", Unit::Seconds, "Forward pass and sampling on the shard");
    describe_counter!("headrace_cancellations_total", Unit::Count, "Generations cancelled, by cause");
    describe_gauge!("headrace_shard_hop_seconds", Unit::Seconds, "Smoothed overhead of the way to the shard and back");
}
