//! Fills one step: every decode row, then prompt chunks until the token budget is used up.

use std::ops::Range;

use crate::chunk_order::Prefilling;
use crate::in_flight::Member;
use crate::plan::{Admission, Chunk, Decode, StepPlan};
use crate::scheduler::Scheduler;
use crate::sequence::{Place, Sequence};
use crate::sequences::Handle;
use crate::units::{BlockId, Blocks, Tokens};

impl Scheduler {
    /// `None` when nobody can compute anything.
    pub(crate) fn pack(&mut self) -> Option<StepPlan> {
        let decodes = self.decodes_with_room();
        let mut draft = Draft::new(self, decodes.len());
        self.pack_chunks(&mut draft);
        for &handle in &decodes {
            draft.push_decode(handle, &mut self.sequences[handle]);
        }
        if draft.members.is_empty() {
            return None;
        }
        self.gate.count(!draft.plan.decodes.is_empty(), !draft.plan.admitted.is_empty());
        self.in_flight.take_off(draft.members);
        Some(draft.plan)
    }

    /// Decode rows that have, or now get, a block for their next position. The others sit this plan out: the block they
    /// wait for is leaving with a step in flight.
    fn decodes_with_room(&mut self) -> Vec<Handle> {
        let block_size = self.config.block_size;
        let mut decodes = Vec::with_capacity(self.running.len());
        for &handle in &self.running {
            let sequence = &mut self.sequences[handle];
            if sequence.is_prefilling() {
                continue;
            }
            if sequence.needs_block(block_size) {
                let Some(block) = self.pool.take() else { continue };
                sequence.blocks.push(block);
            }
            decodes.push(handle);
        }
        decodes
    }

    /// Gives the step's prompt tokens to prefilling rows and newcomers, fewest tokens left first.
    ///
    /// A newcomer stands behind every prefilling row that has no more left than it, and behind one whose turn it is. So
    /// a long prompt neither keeps short ones out nor is kept waiting by them for ever.
    fn pack_chunks(&mut self, draft: &mut Draft) {
        let prefilling = self.prefilling();
        let decoding = self.running.len() - prefilling.len();
        let open = self.gate.is_open(self.queue.len(), self.running.len(), decoding);
        let mut promised = prefilling.iter().fold(Blocks::ZERO, |sum, row| sum + self.blocks_to_come(row.handle));
        let mut missed = false;
        let mut budget = self.config.max_batch_prefill_tokens;
        let mut rows = prefilling.into_iter().peekable();
        while budget > Tokens::ZERO {
            let newcomer = if open { self.next_newcomer(promised) } else { None };
            let before = |row: &Prefilling| newcomer.is_none_or(|(_, tokens)| row.goes_before(tokens));
            let handle = match (rows.next_if(before), newcomer) {
                (Some(row), _) => row.handle,
                (None, Some((handle, _))) if self.admit(handle, draft) => {
                    promised += self.blocks_to_come(handle);
                    handle
                }
                _ => break,
            };
            let still_to_come = self.blocks_to_come(handle);
            let tokens = self.chunk(handle, budget, draft);
            budget -= tokens;
            missed |= tokens == Tokens::ZERO;
            promised -= still_to_come - self.blocks_to_come(handle);
        }
        self.turns.count(missed || rows.next().is_some());
    }

    /// Rows in the middle of their prompt, in the order in which they get chunks.
    fn prefilling(&self) -> Vec<Prefilling> {
        let rows = self.running.iter().filter(|handle| self.sequences[**handle].is_prefilling());
        let mut rows: Vec<Prefilling> = rows.map(|&handle| Prefilling::new(handle, &self.sequences[handle])).collect();
        self.turns.order(&mut rows);
        rows
    }

    /// Blocks that the rest of a row's prefill will take.
    fn blocks_to_come(&self, handle: Handle) -> Blocks {
        let sequence = &self.sequences[handle];
        sequence.prefill_end.blocks(self.config.block_size).saturating_sub(Blocks(sequence.blocks.len() as u32))
    }

    /// Gives the head of the queue a row; `false` if there is none.
    fn admit(&mut self, handle: Handle, draft: &mut Draft) -> bool {
        let Some(seat) = self.rows.take() else { return false };
        self.queue.remove(handle);
        let place = self.running.partition_point(|other| *other < handle);
        self.running.insert(place, handle);
        let sequence = &mut self.sequences[handle];
        sequence.sit_down(seat);
        draft.plan.admitted.push(Admission {
            request: handle.request,
            row: seat.row,
            epoch: seat.epoch,
            tokens: sequence.tokens.clone(),
            generated: sequence.generated(),
            computed: sequence.computed,
        });
        true
    }

    /// Plans as much of the row's prompt as budget and free blocks allow, and returns how much that is. Zero only for a
    /// row whose promised blocks went to those who decode; it is not in the plan then.
    fn chunk(&mut self, handle: Handle, budget: Tokens, draft: &mut Draft) -> Tokens {
        let block_size = self.config.block_size;
        let sequence = &mut self.sequences[handle];
        let room = (sequence.blocks.len() as u32 + self.pool.free().0) * block_size.0 - sequence.computed.0;
        let tokens = sequence.to_prefill().min(budget).min(Tokens(room));
        if tokens == Tokens::ZERO {
            return tokens;
        }
        let need = (sequence.computed + tokens).blocks(block_size);
        while (sequence.blocks.len() as u32) < need.0 {
            let Some(block) = self.pool.take() else { break };
            sequence.blocks.push(block);
        }
        let again = sequence.computed_before.saturating_sub(sequence.computed).min(tokens);
        self.counters.recomputed(again);
        draft.push_chunk(handle, sequence, tokens);
        tokens
    }
}

/// A plan in the making, and who is in it.
struct Draft {
    plan: StepPlan,
    members: Vec<Member>,
}

impl Draft {
    fn new(scheduler: &Scheduler, decodes: usize) -> Self {
        let held = scheduler.pool.total() - scheduler.pool.free();
        let plan = StepPlan {
            step: scheduler.in_flight.next_step(),
            admitted: Vec::new(),
            chunks: Vec::new(),
            decodes: Vec::with_capacity(decodes),
            blocks: Vec::with_capacity(held.0 as usize),
        };
        Self { plan, members: Vec::with_capacity(decodes + 1) }
    }

    fn push_chunk(&mut self, handle: Handle, sequence: &mut Sequence, tokens: Tokens) {
        let Place::Running(seat) = sequence.place else { return };
        let samples = tokens == sequence.to_prefill();
        let (start, blocks) = (sequence.computed, self.table(&sequence.blocks));
        self.plan.chunks.push(Chunk { request: handle.request, row: seat.row, start, tokens, samples, blocks });
        self.members.push(Member { handle, row: seat.row, samples });
        self.advance(sequence, tokens, samples);
    }

    fn push_decode(&mut self, handle: Handle, sequence: &mut Sequence) {
        let Place::Running(seat) = sequence.place else { return };
        let (position, blocks) = (sequence.computed, self.table(&sequence.blocks));
        self.plan.decodes.push(Decode { request: handle.request, row: seat.row, position, blocks });
        self.members.push(Member { handle, row: seat.row, samples: true });
        self.advance(sequence, Tokens(1), true);
    }

    fn advance(&self, sequence: &mut Sequence, tokens: Tokens, samples: bool) {
        sequence.computed += tokens;
        sequence.unknown += u32::from(samples);
        sequence.last_step = self.plan.step;
    }

    fn table(&mut self, blocks: &[BlockId]) -> Range<u32> {
        let start = self.plan.blocks.len() as u32;
        self.plan.blocks.extend_from_slice(blocks);
        start..self.plan.blocks.len() as u32
    }
}
