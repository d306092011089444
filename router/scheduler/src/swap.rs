//! Swapping instead of recomputing: a victim's KV goes to host memory, if the shard has some and the copy is cheaper.
//!
//! A copy out is planned with the step after the preemption, and runs before anything else of it: so it sees what the
//! steps in flight still write, and nothing that anybody writes later. A copy in is planned with the step that admits the
//! request again, in the same plan or once the copy out has landed: if its step fails, there is nothing to copy in.

use crate::host_pool::Swapped;
use crate::plan::{StepPlan, SwapIn, SwapOut};
use crate::scheduler::Scheduler;
use crate::sequence::Sequence;
use crate::sequences::Handle;
use crate::step_time::StepShape;
use crate::units::{Blocks, Micros, Tokens};

impl Scheduler {
    /// Plans the copy of a victim's KV to host memory, if that is worth it. Call it before the victim lets its blocks go.
    pub(crate) fn swap_out(&mut self, victim: Handle) {
        let sequence = &self.sequences[victim];
        let (tokens, blocks) = (sequence.computed, sequence.computed.blocks(self.config.block_size));
        if blocks == Blocks::ZERO || !self.is_worth_swapping(sequence, blocks) {
            return;
        }
        let Some(hosts) = self.host.take(blocks) else { return };
        let pairs = sequence.blocks.iter().zip(&hosts);
        self.swaps_out.extend(pairs.map(|(&block, &host)| SwapOut { block, host }));
        self.swapping_out.push(victim);
        self.counters.swapped_blocks += u64::from(blocks.0);
        self.sequences[victim].swapped = Some(Swapped { blocks: hosts, tokens });
    }

    /// The copy of its KV to host memory is in flight, or a step that computes what is copied: whether it will be there is
    /// not known. A copy of the very plan that brings it back has the same fate as the request.
    pub(crate) fn is_being_swapped_out(&self, handle: Handle) -> bool {
        let sequence = &self.sequences[handle];
        let not_there = || self.in_flight.swaps_out(handle) || self.in_flight.holds(sequence.last_step);
        sequence.swapped.is_some() && not_there()
    }

    fn is_worth_swapping(&self, sequence: &Sequence, blocks: Blocks) -> bool {
        let mut again = StepShape::default();
        again.add_chunk(Tokens::ZERO, sequence.computed, false);
        let copies = Micros(2 * u64::from(blocks.0) * self.config.swap_time.0);
        copies < self.times.cost().predict(again)
    }

    /// The request has a row, and what the cache had of it. Plans the copy of what host memory has beyond that.
    pub(crate) fn swap_in(&mut self, handle: Handle, plan: &mut StepPlan) {
        let sequence = &mut self.sequences[handle];
        let Some(swapped) = sequence.swapped.take() else { return };
        for host in swapped.blocks.iter().skip(sequence.blocks.len()) {
            // It was admitted with room for all it knows, so there is a block for each.
            let Some(block) = self.kv.take() else { break };
            sequence.blocks.push(block);
            plan.swaps_in.push(SwapIn { host: *host, block });
            if let Some(forecast) = &mut self.forecast {
                forecast.held += Blocks(1);
            }
        }
        let covered = Tokens(sequence.blocks.len() as u32 * self.config.block_size.0);
        sequence.computed = sequence.computed.max(swapped.tokens.min(covered));
        self.host.give_back(swapped);
    }
}
