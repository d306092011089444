//! What a step's answer must hold.
//!
//! Answers carry no lengths of their own: how many log-probabilities come back follows from what the rows asked for.
//! That is bound when the step is sent, because with two steps in flight a row may belong to somebody else by the time
//! its answer arrives.

use std::collections::BTreeMap;

use headrace_scheduler::{Epoch, RequestId, Row, StepId, StepPlan};

use crate::sampling::Sampling;

/// One step's expectations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) step: StepId,
    /// Rows that sample, in the answer's order.
    pub(crate) sampling: Vec<Row>,
    /// Rows with a chunk that does not sample.
    pub(crate) silent: Vec<Row>,
    /// Samples that report more than a token, in order.
    pub(crate) reports: Vec<Report>,
    /// Chunks that report log-probabilities of their positions: whose, and how many.
    pub(crate) prompts: Vec<(RequestId, usize)>,
}

/// What one sample reports beside its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Place among the step's samples.
    pub(crate) sample: usize,
    pub(crate) logprob: bool,
    pub(crate) top_n: usize,
}

/// What the rows of the batch asked for. Only rows that asked for something are remembered: usually none.
#[derive(Debug, Default)]
pub(crate) struct RowAsks {
    asks: BTreeMap<Row, Asks>,
}

#[derive(Debug)]
struct Asks {
    epoch: Epoch,
    logprobs: bool,
    top_n: u32,
    prompt_logprobs: bool,
}

impl RowAsks {
    /// Remembers what a plan's new rows ask for, then says what its answer must hold.
    pub(crate) fn expect(&mut self, plan: &StepPlan, sampling: &[Sampling]) -> Expected {
        self.admit(plan, sampling);
        let silent = plan.chunks.iter().filter(|chunk| !chunk.samples).map(|chunk| chunk.row).collect();
        let sampling: Vec<Row> = plan.sampling_rows().map(|(_, row)| row).collect();
        let (mut reports, mut prompts) = (Vec::new(), Vec::new());
        if !self.asks.is_empty() {
            reports.extend(sampling.iter().enumerate().filter_map(|(sample, row)| self.report(sample, *row)));
            let asking = plan.chunks.iter().filter(|chunk| self.asks_prompt(chunk.row));
            prompts.extend(asking.map(|chunk| (chunk.request, chunk.tokens.0 as usize)));
        }
        Expected { step: plan.step, sampling, silent, reports, prompts }
    }

    /// Forgets rows whose epoch ended, unless somebody else holds them by now.
    pub(crate) fn filter(&mut self, rows: &[(Row, Epoch)]) {
        for (row, epoch) in rows {
            if self.asks.get(row).is_some_and(|asks| asks.epoch == *epoch) {
                self.asks.remove(row);
            }
        }
    }

    fn admit(&mut self, plan: &StepPlan, sampling: &[Sampling]) {
        for (admission, sampling) in plan.admitted.iter().zip(sampling) {
            let asks = Asks {
                epoch: admission.epoch,
                logprobs: sampling.logprobs,
                top_n: sampling.top_n,
                prompt_logprobs: sampling.prompt_logprobs,
            };
            if asks.logprobs || asks.top_n > 0 || asks.prompt_logprobs {
                self.asks.insert(admission.row, asks);
            } else {
                self.asks.remove(&admission.row); // its last holder may have asked
            }
        }
    }

    fn report(&self, sample: usize, row: Row) -> Option<Report> {
        let asks = self.asks.get(&row)?;
        let report = Report { sample, logprob: asks.logprobs, top_n: asks.top_n as usize };
        (report.logprob || report.top_n > 0).then_some(report)
    }

    fn asks_prompt(&self, row: Row) -> bool {
        self.asks.get(&row).is_some_and(|asks| asks.prompt_logprobs)
    }
}

impl Expected {
    /// Is the row in this step?
    pub(crate) fn has_row(&self, row: Row) -> bool {
        self.sampling.contains(&row) || self.silent.contains(&row)
    }
}

#[cfg(test)]
mod tests {
    use headrace_scheduler::{Admission, Chunk, Decode, Tokens};

    use super::*;

    fn logprobs() -> Sampling {
        Sampling { logprobs: true, ..Sampling::greedy() }
    }

    fn prefill(step: u64, row: u32, epoch: u64) -> StepPlan {
        let (request, row) = (RequestId(epoch), Row(row));
        let (tokens, generated, computed) = (vec![1, 2], Tokens(0), Tokens(0));
        StepPlan {
            admitted: vec![Admission { request, row, epoch: Epoch(epoch), tokens, generated, computed }],
            chunks: vec![Chunk { request, row, start: Tokens(0), tokens: Tokens(2), samples: true, blocks: 0..0 }],
            ..StepPlan::new(StepId(step))
        }
    }

    fn decode(step: u64, row: u32) -> StepPlan {
        let decode = Decode { request: RequestId(1), row: Row(row), position: Tokens(2), blocks: 0..0 };
        StepPlan { decodes: vec![decode], ..StepPlan::new(StepId(step)) }
    }

    const LOGPROB: Report = Report { sample: 0, logprob: true, top_n: 0 };

    #[test]
    fn a_row_reports_in_later_steps_what_its_admission_asked_for() {
        let mut asks = RowAsks::default();
        assert_eq!(asks.expect(&prefill(1, 3, 1), &[logprobs()]).reports, [LOGPROB]);
        assert_eq!(asks.expect(&decode(2, 3), &[]).reports, [LOGPROB]);
        assert_eq!(asks.expect(&decode(2, 4), &[]).reports, []);
    }

    #[test]
    fn a_row_given_away_reports_what_its_new_holder_asked_for() {
        let mut asks = RowAsks::default();
        let first = asks.expect(&prefill(1, 3, 1), &[logprobs()]);
        let second = asks.expect(&prefill(2, 3, 2), &[Sampling::greedy()]);
        assert_eq!((first.reports, second.reports), (vec![LOGPROB], vec![]));
    }

    #[test]
    fn a_late_filter_does_not_touch_the_rows_new_holder() {
        let mut asks = RowAsks::default();
        asks.expect(&prefill(1, 3, 1), &[logprobs()]);
        asks.expect(&prefill(2, 3, 2), &[logprobs()]);
        asks.filter(&[(Row(3), Epoch(1))]);
        assert_eq!(asks.expect(&decode(3, 3), &[]).reports, [LOGPROB]);
    }

    #[test]
    fn nothing_is_remembered_of_a_row_whose_epoch_ended() {
        let mut asks = RowAsks::default();
        asks.expect(&prefill(1, 3, 1), &[logprobs()]);
        asks.filter(&[(Row(3), Epoch(1))]);
        assert!(asks.asks.is_empty());
    }
}
