//! Fills one step: every decode row, then prompt chunks until the token budget is used up.

use std::ops::Range;

use crate::admission::Newcomer;
use crate::chunk_order::Prefilling;
use crate::in_flight::Member;
use crate::plan::{Admission, Chunk, Decode, Entrance, StepPlan};
use crate::preemption::spared_for;
use crate::scheduler::Scheduler;
use crate::sequence::{Place, Sequence};
use crate::sequences::Handle;
use crate::step_time::StepShape;
use crate::units::{BlockId, Blocks, Micros, Tokens};

/// A chunk that a time target would cut shorter is this long all the same: prompts must get on.
const SHORTEST_TIMED_CHUNK: Tokens = Tokens(16);

impl Scheduler {
    /// `None` when nobody can compute anything.
    pub(crate) fn pack(&mut self, now: Micros) -> Option<StepPlan> {
        let mut draft = Draft::new(self);
        // Decode rows take their blocks first, and stand behind the chunks. Without chunking they are left out of a step
        // with prompts.
        let mut decodes = if self.config.chunked_prefill { self.begin_decodes(&mut draft) } else { Vec::new() };
        self.pack_chunks(&mut draft, now);
        if draft.members.is_empty() && !self.config.chunked_prefill {
            decodes = self.begin_decodes(&mut draft);
        }
        self.pack_decodes(&mut draft, &decodes);
        if draft.members.is_empty() {
            return None;
        }
        self.gate.count(!draft.plan.decodes.is_empty(), !draft.plan.admitted.is_empty());
        self.lengths.step();
        draft.plan.swaps_out.append(&mut self.swaps_out);
        self.host.planned();
        self.last_plan_blocks = draft.plan.blocks.len();
        let swapped_out = std::mem::take(&mut self.swapping_out);
        self.in_flight.take_off(draft.members, swapped_out, draft.shape, now);
        Some(draft.plan)
    }

    /// Decode rows that have, or now get, a block for their next position. The others sit this plan out: the block they
    /// wait for is leaving with a step in flight.
    fn begin_decodes(&mut self, draft: &mut Draft) -> Vec<Handle> {
        let block_size = self.config.block_size;
        let mut decodes = Vec::with_capacity(self.running.len());
        for &handle in &self.running {
            let sequence = &mut self.sequences[handle];
            if sequence.is_prefilling() {
                continue;
            }
            if sequence.needs_block(block_size) {
                let Some(block) = self.kv.take() else { continue };
                sequence.blocks.push(block);
            }
            draft.shape.add_decode(sequence.computed);
            decodes.push(handle);
        }
        decodes
    }

    fn pack_decodes(&mut self, draft: &mut Draft, decodes: &[Handle]) {
        for &handle in decodes {
            let sequence = &mut self.sequences[handle];
            self.queue.policy.charge(sequence.tenant, 0, 1);
            draft.push_decode(handle, sequence);
        }
    }

    /// Gives the step's prompt tokens to prefilling rows and newcomers, fewest tokens left first.
    ///
    /// A newcomer stands behind every prefilling row that has no more left than it, and behind one whose turn it is. So
    /// a long prompt neither keeps short ones out nor is kept waiting by them for ever.
    fn pack_chunks(&mut self, draft: &mut Draft, now: Micros) {
        let prefilling = self.prefilling();
        let decoding = self.running.len() - prefilling.len();
        // Who had to give blocks back in this plan must not get them back in it.
        let open = !self.short && self.gate.is_open(self.queue.len(), self.running.len(), decoding);
        let entrance = match self.running.is_empty() {
            true => Entrance::Free,
            false if self.gate.is_overdue(decoding) => Entrance::Overdue,
            false => Entrance::Joined,
        };
        let mut promised = prefilling.iter().fold(Blocks::ZERO, |sum, row| sum + self.blocks_to_come(row.handle));
        let mut missed = false;
        let beside = if self.config.chunked_prefill { decoding } else { 0 };
        let most = self.step_limit.prompt_tokens(self.config.max_batch_prefill_tokens, beside);
        let mut budget = most;
        let mut rows = prefilling.into_iter().peekable();
        self.begin_deferrals();
        let mut newcomer = if open { self.next_newcomer(promised, now) } else { None };
        while budget > Tokens::ZERO {
            let before = |row: &Prefilling| newcomer.is_none_or(|newcomer| row.goes_before(newcomer.uncached));
            let handle = match (rows.next_if(before), newcomer) {
                (Some(row), _) => row.handle,
                (None, Some(next))
                    if self.fits_budget(next, budget, most, draft) && self.admit(next.handle, promised, draft) =>
                {
                    promised += self.blocks_to_come(next.handle);
                    next.handle
                }
                _ => break,
            };
            let still_to_come = self.blocks_to_come(handle);
            let tokens = self.chunk(handle, budget, draft);
            budget -= tokens;
            missed |= tokens == Tokens::ZERO;
            promised -= still_to_come - self.blocks_to_come(handle);
            if newcomer.is_some_and(|newcomer| newcomer.handle == handle) {
                newcomer = self.next_newcomer(promised, now);
            }
        }
        self.turns.count(missed || rows.next().is_some());
        if !draft.plan.admitted.is_empty() {
            draft.plan.entrance = entrance;
        }
    }

    /// A newcomer gets at least one token in the step that admits it. Without chunking a prompt waits for a step that
    /// takes it whole; one beyond any step's budget, which is `most`, is cut all the same.
    fn fits_budget(&self, newcomer: Newcomer, budget: Tokens, most: Tokens, draft: &Draft) -> bool {
        let Newcomer { handle, uncached } = newcomer;
        let whole = uncached.min(most);
        let start = self.sequences[handle].known() - uncached;
        (self.config.chunked_prefill || whole <= budget)
            && self.tokens_in_time(start, uncached.min(budget), draft) > Tokens::ZERO
    }

    /// Rows in the middle of their prompt, in the order in which they get chunks.
    fn prefilling(&self) -> Vec<Prefilling> {
        let rows = self.running.iter().filter(|handle| self.sequences[**handle].is_prefilling());
        let mut rows: Vec<Prefilling> = rows.map(|&handle| Prefilling::new(handle, &self.sequences[handle])).collect();
        self.turns.order(&mut rows);
        rows
    }

    fn blocks_to_come(&self, handle: Handle) -> Blocks {
        self.sequences[handle].blocks_to_come(self.config.block_size)
    }

    /// Gives a waiting request a row, and the blocks that hold its beginning; `false` if it does not fit any more, since
    /// what it would have found was given up for others in this very plan.
    fn admit(&mut self, handle: Handle, promised: Blocks, draft: &mut Draft) -> bool {
        if self.fits(handle, promised).is_none() {
            return false;
        }
        let Some(seat) = self.rows.take() else { return false };
        let displaced = self.room_for == Some(handle);
        let Some((_, by_age)) = self.queue.admit(handle, displaced) else { return false };
        let place = self.running.partition_point(|other| *other < handle);
        self.running.insert(place, handle);
        self.kv.share(&self.found);
        let sequence = &mut self.sequences[handle];
        sequence.sit_down(seat, &self.found, self.config.block_size);
        sequence.spared_until = sequence.sampled() + spared_for(sequence, by_age);
        self.swap_in(handle, &mut draft.plan);
        self.fork(handle, &mut draft.plan);
        let sequence = &self.sequences[handle];
        if sequence.reads_cache && self.config.prefix_cache {
            self.counters.looked_up(sequence.known(), sequence.computed);
        }
        if sequence.never_ran() {
            self.forget_deadline(handle);
        }
        let sequence = &self.sequences[handle];
        self.queue.policy.seated(sequence.tenant, true);
        draft.plan.admitted.push(Admission {
            request: handle.request,
            row: seat.row,
            epoch: seat.epoch,
            tokens: sequence.tokens.clone(),
            generated: sequence.generated(),
            computed: sequence.computed,
        });
        if sequence.is_publishing_prompt(self.config.block_size) {
            self.publishing.push(handle);
        }
        self.forecast_newcomer(handle);
        true
    }

    /// Plans as much of the row's prompt as budget, time target and blocks allow, and returns how much that is. Zero
    /// only for a row whose promised blocks went to those who decode, or whose time is up; it is not in the plan then.
    fn chunk(&mut self, handle: Handle, budget: Tokens, draft: &mut Draft) -> Tokens {
        let block_size = self.config.block_size;
        let sequence = &self.sequences[handle];
        let in_time = self.tokens_in_time(sequence.computed, sequence.to_prefill().min(budget), draft);
        let sequence = &mut self.sequences[handle];
        let room = (sequence.blocks.len() as u32 + self.kv.available().0) * block_size.0 - sequence.computed.0;
        let tokens = in_time.min(Tokens(room));
        if tokens == Tokens::ZERO {
            return tokens;
        }
        let need = (sequence.computed + tokens).blocks(block_size);
        while (sequence.blocks.len() as u32) < need.0 {
            let Some(block) = self.kv.take() else { break };
            sequence.blocks.push(block);
            if let Some(forecast) = &mut self.forecast {
                forecast.held += Blocks(1);
            }
        }
        let again = sequence.computed_before.saturating_sub(sequence.computed).min(tokens);
        self.counters.recomputed(again);
        let samples = u64::from(tokens == sequence.to_prefill());
        self.queue.policy.charge(sequence.tenant, u64::from((tokens - again).0), samples);
        draft.push_chunk(handle, sequence, tokens);
        tokens
    }

    /// Of the next `most` tokens from `start`, those that keep a step with decode rows within `target_itl`. The first
    /// chunk of a step gets a few in any case.
    fn tokens_in_time(&self, start: Tokens, most: Tokens, draft: &Draft) -> Tokens {
        let Some(target) = self.config.target_itl.filter(|_| draft.shape.sampling_rows > 0) else { return most };
        let fit = self.times.cost().chunk_within(target, draft.shape, start, most);
        let least = if draft.plan.chunks.is_empty() { SHORTEST_TIMED_CHUNK.min(most) } else { Tokens::ZERO };
        fit.max(least)
    }
}

/// A plan in the making, and who is in it.
struct Draft {
    plan: StepPlan,
    members: Vec<Member>,
    /// Decode rows are in it from the start, chunks as they are planned.
    shape: StepShape,
}

impl Draft {
    fn new(scheduler: &Scheduler) -> Self {
        let rows = scheduler.running.len();
        let blocks = scheduler.last_plan_blocks + rows;
        let plan = StepPlan {
            decodes: Vec::with_capacity(rows),
            blocks: Vec::with_capacity(blocks),
            ..StepPlan::new(scheduler.in_flight.next_step())
        };
        Self { plan, members: Vec::with_capacity(rows + 1), shape: StepShape::default() }
    }

    fn push_chunk(&mut self, handle: Handle, sequence: &mut Sequence, tokens: Tokens) {
        let Place::Running(seat) = sequence.place else { return };
        let samples = tokens == sequence.to_prefill();
        let (start, blocks) = (sequence.computed, self.table(&sequence.blocks));
        self.plan.chunks.push(Chunk { request: handle.request, row: seat.row, start, tokens, samples, blocks });
        self.members.push(Member { handle, seat, samples, end: start + tokens });
        self.shape.add_chunk(start, tokens, samples);
        self.advance(sequence, tokens, samples);
    }

    fn push_decode(&mut self, handle: Handle, sequence: &mut Sequence) {
        let Place::Running(seat) = sequence.place else { return };
        let (position, blocks) = (sequence.computed, self.table(&sequence.blocks));
        self.plan.decodes.push(Decode { request: handle.request, row: seat.row, position, blocks });
        self.members.push(Member { handle, seat, samples: true, end: position + Tokens(1) });
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
