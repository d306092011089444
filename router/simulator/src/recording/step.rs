//! A step of a trace: what was planned, what it cost, and how the router and the shard took turns.

use headrace_scheduler::trace::PlanRecord;
use headrace_scheduler::{Micros, RequestId, Row, StepId, StepShape, Tokens};

/// A step that landed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub shape: StepShape,
    pub planned: Micros,
    pub landed: Micros,
    /// As the shard measured it.
    pub took: Micros,
    /// When the step before it landed, if it was under way when this one was planned.
    pub behind: Option<Micros>,
}

/// A step in flight.
pub(crate) struct Planned {
    pub step: StepId,
    pub at: Micros,
    pub shape: StepShape,
    /// All rows; those that sample first, in the order of the samples.
    pub members: Vec<(RequestId, Row)>,
    pub samples: usize,
    pub behind: Behind,
}

/// What was under way when a step was planned.
pub(crate) enum Behind {
    Nothing,
    Running,
    /// It has landed since.
    Landed(Micros),
}

impl Planned {
    pub fn new(plan: &PlanRecord, at: Micros, behind: Behind) -> Self {
        let mut shape = StepShape::default();
        plan.chunks.iter().for_each(|&(.., start, tokens, samples)| {
            shape.add_chunk(Tokens(start), Tokens(tokens), samples);
        });
        plan.decodes.iter().for_each(|&(.., position)| shape.add_decode(Tokens(position)));
        let chunks = |samples: bool| plan.chunks.iter().filter(move |chunk| chunk.4 == samples);
        let of = |&(request, row, ..): &(u64, u32, u32, u32, bool)| (RequestId(request), Row(row));
        let decodes = plan.decodes.iter().map(|&(request, row, _)| (RequestId(request), Row(row)));
        let mut members: Vec<_> = chunks(true).map(of).chain(decodes).collect();
        let samples = members.len();
        members.extend(chunks(false).map(of));
        Self { step: plan.step, at, shape, members, samples, behind }
    }

    pub fn landed(&self, at: Micros, took: Micros) -> Step {
        let behind = match self.behind {
            Behind::Landed(moment) => Some(moment),
            Behind::Nothing | Behind::Running => None,
        };
        Step { shape: self.shape, planned: self.at, landed: at, took, behind }
    }
}
