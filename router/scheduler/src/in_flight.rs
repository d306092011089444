//! Steps that were planned and whose outcome is not known: at most two, answered in order.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::rows::Seat;
use crate::sequences::Handle;
use crate::step_time::StepShape;
use crate::units::{BlockId, Micros, StepId, Tokens};

/// While the shard computes one step, the next may wait in its inbox; a third would only delay newcomers.
pub(crate) const MAX_IN_FLIGHT: usize = 2;

/// A sequence's part in a step.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Member {
    pub handle: Handle,
    pub seat: Seat,
    pub samples: bool,
    /// Positions below this are computed when the step has landed.
    pub end: Tokens,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Flight {
    pub step: StepId,
    /// In the plan's order: chunks, then decodes.
    pub members: Vec<Member>,
    /// Whose KV went to host memory with this step.
    pub swapped_out: Vec<Handle>,
    /// Blocks the step may write although their sequences let go of them: free when it lands.
    pub frees: Vec<BlockId>,
    pub shape: StepShape,
    pub planned: Micros,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct InFlight {
    flights: VecDeque<Flight>,
    last_step: u64,
}

impl InFlight {
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    pub fn is_full(&self) -> bool {
        self.flights.len() >= MAX_IN_FLIGHT
    }

    /// Steps taken off so far.
    pub fn steps(&self) -> u64 {
        self.last_step
    }

    pub fn next_step(&self) -> StepId {
        StepId(self.last_step + 1)
    }

    pub fn take_off(&mut self, members: Vec<Member>, swapped_out: Vec<Handle>, shape: StepShape, planned: Micros) {
        let step = self.next_step();
        self.last_step = step.0;
        self.flights.push_back(Flight { step, members, swapped_out, frees: Vec::new(), shape, planned });
    }

    /// Members of a step in flight that sample, in the order of its samples.
    pub fn sampling(&self, step: StepId) -> impl Iterator<Item = &Member> {
        let flight = self.flights.iter().filter(move |flight| flight.step == step);
        flight.flat_map(|flight| flight.members.iter()).filter(|member| member.samples)
    }

    /// Whether a step in flight copies this one's KV to host memory.
    pub fn swaps_out(&self, handle: Handle) -> bool {
        self.flights.iter().any(|flight| flight.swapped_out.contains(&handle))
    }

    /// The outcome of step `step` is not known.
    pub fn holds(&self, step: StepId) -> bool {
        self.flights.iter().any(|flight| flight.step == step)
    }

    /// The step `step`, if its outcome is not known.
    pub fn find(&mut self, step: StepId) -> Option<&mut Flight> {
        self.flights.iter_mut().find(|flight| flight.step == step)
    }

    /// `None`: not the oldest step in flight, so a late answer of a lost session.
    pub fn land(&mut self, step: StepId) -> Option<Flight> {
        let oldest = self.flights.front()?;
        if oldest.step == step { self.flights.pop_front() } else { None }
    }

    pub fn clear(&mut self) {
        self.flights.clear();
    }
}

#[cfg(test)]
impl InFlight {
    pub fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter()
    }
}
