//! What happened: to every request, and in every row.

use headrace_scheduler::{Blocks, Micros, Priority, Row, Stats, StepPlan};

/// A simulation from the first arrival to the last token.
#[derive(Clone, Debug)]
pub struct Run {
    /// In the order of the workload.
    pub requests: Vec<Outcome>,
    /// Who was in which row when; in the order of their beginnings in each row.
    pub bars: Vec<Bar>,
    pub max_batch_size: u32,
    pub steps: u64,
    /// Chunks and decode rows of all plans.
    pub planned_rows: u64,
    /// The first arrival, and the last thing that happened.
    pub began: Micros,
    pub ended: Micros,
    /// The most blocks that requests held after any plan; what only the cache keeps does not count.
    pub peak_blocks: Blocks,
    /// The scheduler's own counters at the end.
    pub stats: Stats,
}

/// One request's fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub tenant: String,
    pub priority: Priority,
    pub arrived: Micros,
    /// When its first step was planned.
    pub planned: Option<Micros>,
    /// When each token of its answer was there.
    pub tokens: Vec<Micros>,
    /// With its moment; everybody has one when a run is over.
    pub ending: Option<(Ending, Micros)>,
    /// If it was refused on arrival: when it was told to come again.
    pub retry_after: Option<Micros>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The whole answer was given.
    Answered,
    /// Not taken, or displaced from a full queue.
    Rejected,
    /// Its deadline passed before its first step.
    DeadlineMissed,
    /// Its client was gone before the answer was whole.
    Left,
}

/// A request in a row over steps that follow each other, in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    pub row: Row,
    /// Its number in the workload, from 0.
    pub request: usize,
    pub phase: Phase,
    /// From the begin of the first step to the end of the last.
    pub began: Micros,
    pub ended: Micros,
    /// Number of the last step.
    last_step: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Prefill,
    Decode,
}

/// Collects bars step by step.
#[derive(Default)]
pub(crate) struct Bars {
    done: Vec<Bar>,
    /// The newest bar of each row.
    rows: Vec<Option<Bar>>,
}

impl Bars {
    /// A step runs from `began` to `ended`. `number` gives a request's place in the workload.
    pub fn add(
        &mut self,
        plan: &StepPlan,
        began: Micros,
        ended: Micros,
        number: impl Fn(headrace_scheduler::RequestId) -> usize,
    ) {
        let chunks = plan.chunks.iter().map(|chunk| (chunk.row, chunk.request, Phase::Prefill));
        let decodes = plan.decodes.iter().map(|decode| (decode.row, decode.request, Phase::Decode));
        for (row, request, phase) in chunks.chain(decodes) {
            let last_step = plan.step.0;
            self.extend(Bar { row, request: number(request), phase, began, ended, last_step });
        }
    }

    fn extend(&mut self, bar: Bar) {
        let row = bar.row.0 as usize;
        if self.rows.len() <= row {
            self.rows.resize(row + 1, None);
        }
        match &mut self.rows[row] {
            Some(last) if last.goes_on_as(&bar) => (last.ended, last.last_step) = (bar.ended, bar.last_step),
            last => self.done.extend(last.replace(bar)),
        }
    }

    pub fn finish(mut self) -> Vec<Bar> {
        self.done.extend(self.rows.into_iter().flatten());
        self.done.sort_by_key(|bar| (bar.row, bar.began));
        self.done
    }
}

impl Bar {
    fn goes_on_as(&self, next: &Self) -> bool {
        (self.request, self.phase, self.last_step + 1) == (next.request, next.phase, next.last_step)
    }
}
