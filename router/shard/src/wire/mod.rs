//! Plans to bytes, answers to results. Pure.

mod answer;
mod pack;
mod step;
#[cfg(test)]
mod tests;

use std::ops::Range;

use headrace_scheduler::{BlockId, StepPlan};

use crate::error::ShardError;
use crate::sampling::Sampling;
use crate::session::MAX_STEPS_IN_FLIGHT;

pub(crate) use answer::result;
pub(crate) use step::{StepKind, encode_filter, encode_step};

/// Largest message in either direction: 64 MiB. A prompt of 100,000 tokens takes 0.4 MB in its first Prefill, so one
/// step can admit 160 of them at once; the largest answer, 4,096 prompt log-probabilities and the top 20 of 256 rows, is
/// below 0.1 MB.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Can this plan be sent, with `in_flight` steps unanswered?
pub(crate) fn check_plan(plan: &StepPlan, sampling: &[Sampling], in_flight: usize) -> Result<(), ShardError> {
    let step = plan.step;
    let misuse = |reason| Err(ShardError::Misuse { reason });
    if in_flight >= MAX_STEPS_IN_FLIGHT {
        return misuse(format!("step {step} is sent while {in_flight} steps are unanswered"));
    }
    if plan.chunks.is_empty() && plan.decodes.is_empty() {
        return misuse(format!("step {step} has no rows"));
    }
    if plan.chunks.len() < plan.admitted.len() {
        return misuse(format!("step {step} admits {} rows with {} chunks", plan.admitted.len(), plan.chunks.len()));
    }
    if sampling.len() != plan.admitted.len() {
        let (given, wanted) = (sampling.len(), plan.admitted.len());
        return misuse(format!("step {step} has {given} sampling parameters for {wanted} admitted rows"));
    }
    tables(plan).try_for_each(|range| table(plan, range).map(drop)).or_else(misuse)
}

/// The ranges of the rows' block tables, in the wire's order: chunks, then decodes.
pub(crate) fn tables(plan: &StepPlan) -> impl Iterator<Item = &Range<u32>> {
    let chunks = plan.chunks.iter().map(|chunk| &chunk.blocks);
    chunks.chain(plan.decodes.iter().map(|decode| &decode.blocks))
}

/// One row's block table.
pub(crate) fn table<'a>(plan: &'a StepPlan, range: &Range<u32>) -> Result<&'a [BlockId], String> {
    plan.blocks.get(range.start as usize..range.end as usize).ok_or_else(|| {
        format!("step {} has a block table {range:?} outside its {} blocks", plan.step, plan.blocks.len())
    })
}
