//! What the engine measures of steps and tokens; `load_metrics` has the rest. Handles are made once, never per token.

use std::time::Duration;

use headrace_scheduler::{Entrance, Micros, PolicyKind, StepPlan};
use headrace_shard::StepTiming;
use headrace_telemetry::{Counter, Gauge, Histogram, table};

use crate::answer::Wait;
use crate::load_metrics::LoadMetrics;
use crate::pacing::{Kind, Spent};

/// Why a generation was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelCause {
    ClientLeft,
    SlowReader,
    /// It took longer than it was allowed.
    TimedOut,
}

pub(crate) struct Telemetry {
    pub load: LoadMetrics,
    next_size: Histogram,
    concat_backpressure: Counter,
    concat_wait_exceeded: Counter,
    concat_chunking: Counter,
    concat_duration: Histogram,
    filter_duration: Histogram,
    prefill: StepMetrics,
    decode: StepMetrics,
    step_rows: Histogram,
    step_tokens: Histogram,
    client_left: Counter,
    slow_reader: Counter,
    timed_out: Counter,
    hop: Gauge,
    first_token: Histogram,
    between_tokens: Histogram,
}

struct StepMetrics {
    count: Counter,
    success: Counter,
    failure: Counter,
    inference_duration: Histogram,
    forward_duration: Histogram,
    decode_duration: Histogram,
    step_duration: Histogram,
    overhead: Histogram,
}

/// Why prompts were computed beside rows that ran already: TGI's reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concat {
    /// Newcomers, let in at once or since enough of them waited.
    Backpressure,
    /// Newcomers, let in since they had waited for `--max-waiting-tokens` steps.
    WaitExceeded,
    /// The rest of prompts that began before.
    Chunking,
}

/// Times of a step whose result has been dealt with.
pub(crate) struct Landed {
    pub kind: Kind,
    pub computed: bool,
    pub timing: StepTiming,
    pub spent: Spent,
    /// Turning the result into text and updates.
    pub text: Duration,
}

impl Telemetry {
    /// `pool_tokens`: how many tokens the KV pool holds.
    pub(crate) fn new(pool_tokens: u64, policy: PolicyKind) -> Self {
        Self {
            load: LoadMetrics::new(pool_tokens, policy),
            next_size: table::BATCH_NEXT_SIZE.handle(),
            concat_backpressure: table::BATCH_CONCAT.of("backpressure"),
            concat_wait_exceeded: table::BATCH_CONCAT.of("wait_exceeded"),
            concat_chunking: table::BATCH_CONCAT.of("chunking"),
            concat_duration: table::BATCH_CONCAT_DURATION.of("decode"),
            filter_duration: table::BATCH_FILTER_DURATION.of("decode"),
            prefill: StepMetrics::new("prefill"),
            decode: StepMetrics::new("decode"),
            step_rows: table::STEP_ROWS.handle(),
            step_tokens: table::STEP_TOKENS.handle(),
            client_left: table::CANCELLATIONS.of("client_left"),
            slow_reader: table::CANCELLATIONS.of("slow_reader"),
            timed_out: table::CANCELLATIONS.of("timeout"),
            hop: table::SHARD_HOP.handle(),
            first_token: table::TIME_TO_FIRST_TOKEN.handle(),
            between_tokens: table::INTER_TOKEN_LATENCY.handle(),
        }
    }

    /// `took`: planning and sending it.
    pub(crate) fn sent(&self, plan: &StepPlan, kind: Kind, took: Duration) {
        self.step(kind).count.increment(1);
        let rows = plan.chunks.len() + plan.decodes.len();
        self.step_rows.record(rows as f64);
        self.step_tokens.record(f64::from(plan.tokens().0));
        let admitted = plan.admitted.len();
        if admitted > 0 {
            self.next_size.record(admitted as f64);
        }
        if let Some(concat) = Concat::of(plan) {
            self.concat(concat).increment(1);
            self.concat_duration.record(took);
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
        metrics.inference_duration.record(Duration::from_micros(landed.spent.busy.0));
        metrics.forward_duration.record(micros(landed.timing.forward_us));
        metrics.decode_duration.record(landed.text);
        metrics.step_duration.record(micros(landed.timing.forward_us.saturating_add(landed.timing.sampling_us)));
        metrics.overhead.record(Duration::from_micros(landed.spent.overhead.0));
    }

    /// A token came after this wait.
    pub(crate) fn waited(&self, wait: Wait) {
        match wait {
            Wait::First(time) => self.first_token.record(time.0 as f64 / 1e6),
            Wait::Next(time) => self.between_tokens.record(time.0 as f64 / 1e6),
        }
    }

    pub(crate) fn cancelled(&self, cause: CancelCause) {
        match cause {
            CancelCause::ClientLeft => self.client_left.increment(1),
            CancelCause::SlowReader => self.slow_reader.increment(1),
            CancelCause::TimedOut => self.timed_out.increment(1),
        }
    }

    pub(crate) fn hop(&self, hop: Option<Micros>) {
        if let Some(hop) = hop {
            self.hop.set(hop.0 as f64 / 1e6);
        }
    }

    fn concat(&self, concat: Concat) -> &Counter {
        match concat {
            Concat::Backpressure => &self.concat_backpressure,
            Concat::WaitExceeded => &self.concat_wait_exceeded,
            Concat::Chunking => &self.concat_chunking,
        }
    }

    fn step(&self, kind: Kind) -> &StepMetrics {
        match kind {
            Kind::Prefill => &self.prefill,
            Kind::Decode => &self.decode,
        }
    }
}

impl Concat {
    /// `None`: nobody joined anybody.
    fn of(plan: &StepPlan) -> Option<Self> {
        match plan.entrance {
            Entrance::Joined => Some(Self::Backpressure),
            Entrance::Overdue => Some(Self::WaitExceeded),
            Entrance::Free => (plan.admitted.is_empty() && !plan.chunks.is_empty()).then_some(Self::Chunking),
        }
    }
}

impl StepMetrics {
    fn new(method: &'static str) -> Self {
        Self {
            count: table::BATCH_INFERENCE_COUNT.of(method),
            success: table::BATCH_INFERENCE_SUCCESS.of(method),
            failure: table::BATCH_INFERENCE_FAILURE.of(method),
            inference_duration: table::BATCH_INFERENCE_DURATION.of(method),
            forward_duration: table::BATCH_FORWARD_DURATION.of(method),
            decode_duration: table::BATCH_DECODE_DURATION.of(method),
            step_duration: table::STEP_DURATION.of(method),
            overhead: table::STEP_OVERHEAD.of(method),
        }
    }
}

#[cfg(test)]
mod tests {
    use headrace_scheduler::{Admission, Chunk, Epoch, RequestId, Row, StepId, Tokens};

    use super::*;

    /// One row computes one token of its prompt.
    fn prefill() -> StepPlan {
        let (request, row, start) = (RequestId(1), Row(0), Tokens::ZERO);
        let chunk = Chunk { request, row, start, tokens: Tokens(1), samples: true, blocks: 0..0 };
        StepPlan { chunks: vec![chunk], ..StepPlan::new(StepId(1)) }
    }

    fn admitting(entrance: Entrance) -> StepPlan {
        let (tokens, none) = (vec![5], Tokens::ZERO);
        let (request, row, epoch) = (RequestId(1), Row(0), Epoch(1));
        let newcomer = Admission { request, row, epoch, tokens, generated: none, computed: none };
        StepPlan { admitted: vec![newcomer], entrance, ..prefill() }
    }

    #[test]
    fn steps_in_which_prompts_join_others_are_counted_by_tgis_reasons() {
        assert_eq!(Concat::of(&admitting(Entrance::Joined)), Some(Concat::Backpressure));
        assert_eq!(Concat::of(&admitting(Entrance::Overdue)), Some(Concat::WaitExceeded));
        assert_eq!(Concat::of(&prefill()), Some(Concat::Chunking));
        assert_eq!(Concat::of(&admitting(Entrance::Free)), None);
        assert_eq!(Concat::of(&StepPlan::new(StepId(1))), None);
    }
}
