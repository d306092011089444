//! The scheduler itself: its commands, and how a sequence leaves its row.

use std::collections::VecDeque;
use std::fmt;

use crate::admission::{Gate, watermark};
use crate::chunk_order::Turns;
use crate::config::Config;
use crate::event::{Event, FinishReason};
use crate::in_flight::InFlight;
use crate::plan::{StepOutcome, StepPlan};
use crate::policy::Fcfs;
use crate::pool::BlockPool;
use crate::preemption::preempt_at;
use crate::request::{Rejected, Request};
use crate::rows::Rows;
use crate::sequence::{Place, Sequence};
use crate::sequences::{Handle, Sequences};
use crate::stats::{BlockStats, Counters, Stats};
use crate::units::{Blocks, Epoch, Micros, RequestId, Row, StepId, Tokens};

/// Owns every unfinished request and every KV block; decides what each step computes.
///
/// Commands go in ([`submit`](Self::submit), [`cancel`](Self::cancel), [`stop`](Self::stop),
/// [`complete_step`](Self::complete_step), [`session_lost`](Self::session_lost)); plans, events and released rows come
/// out and must be polled, or they pile up. Nothing here waits, reads a clock or does I/O: the same commands give the
/// same plans and events, byte for byte. Moments are arguments; first come, first served does not look at them.
///
/// `{:?}` prints one short line per running request: rows, progress, blocks, steps in flight.
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) sequences: Sequences,
    /// Who holds a row, in order of arrival.
    pub(crate) running: Vec<Handle>,
    pub(crate) queue: Fcfs,
    pub(crate) gate: Gate,
    pub(crate) turns: Turns,
    pub(crate) rows: Rows,
    pub(crate) pool: BlockPool,
    pub(crate) watermark: Blocks,
    pub(crate) in_flight: InFlight,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
}

impl Scheduler {
    /// Expects a checked configuration: every size at least 1, and `max_total_tokens` no more than the pool holds, so
    /// that any request it lets in can finish alone.
    pub fn new(config: Config) -> Self {
        let pool_tokens = u64::from(config.total_blocks.0) * u64::from(config.block_size.0);
        debug_assert!(config.block_size.0 > 0, "block_size is 0");
        debug_assert!(config.max_batch_size > 0, "max_batch_size is 0");
        debug_assert!(config.max_batch_prefill_tokens.0 > 0, "max_batch_prefill_tokens is 0");
        debug_assert!(u64::from(config.max_total_tokens.0) <= pool_tokens, "max_total_tokens exceeds the pool");
        debug_assert!(pool_tokens <= u64::from(u32::MAX), "the pool's tokens exceed 32 bits");
        Self {
            sequences: Sequences::default(),
            running: Vec::with_capacity(config.max_batch_size as usize),
            queue: Fcfs::default(),
            gate: Gate::new(&config),
            turns: Turns::default(),
            rows: Rows::new(config.max_batch_size),
            pool: BlockPool::new(config.total_blocks),
            watermark: watermark(&config),
            in_flight: InFlight::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// Takes a request to wait for a row; it may be in the very next plan. Ids grow in order of arrival.
    ///
    /// # Errors
    ///
    /// Refuses what could never finish here, and what exceeds `max_concurrent_requests`.
    pub fn submit(&mut self, request: Request, _now: Micros) -> Result<RequestId, Rejected> {
        self.check(&request)?;
        let id = self.sequences.next_id();
        let preempt_at = self.config.preempt_once_seed.and_then(|seed| preempt_at(seed, id, request.max_new_tokens));
        let handle = self.sequences.insert(Sequence::new(request, preempt_at));
        self.queue.push(handle, self.sequences[handle].known());
        Ok(id)
    }

    /// Ends a request in whatever state it is, with [`FinishReason::Cancelled`]. Its row is free for the next plan, its
    /// blocks when no step in flight may write them. No error if it is unknown or has finished.
    pub fn cancel(&mut self, request: RequestId, _now: Micros) {
        if let Some(handle) = self.sequences.find(request) {
            self.end(handle, FinishReason::Cancelled);
        }
    }

    /// Ends a request whose text contains a stop string, with [`FinishReason::StopString`]; does nothing if the same
    /// token ended it otherwise.
    pub fn stop(&mut self, request: RequestId, _now: Micros) {
        if let Some(handle) = self.sequences.find(request) {
            self.end(handle, FinishReason::StopString);
        }
    }

    /// Decides the next step. It may be made while one earlier step is in flight: rows whose newest token is not known
    /// yet go on decoding, unless their length says that it is the last.
    ///
    /// `None`: nothing can run now, or two steps are in flight. Ask again after a `submit` or a `complete_step`.
    /// Also after `None`, rows may be released and events be ready.
    pub fn plan_step(&mut self, _now: Micros) -> Option<StepPlan> {
        if self.in_flight.is_full() {
            return None;
        }
        self.retire();
        self.preempt_once();
        self.make_room();
        self.pack()
    }

    /// Takes what came of a step. Outcomes come in the order of the plans; any other step (one of a lost session) is
    /// ignored.
    pub fn complete_step(&mut self, step: StepId, outcome: StepOutcome, _now: Micros) {
        if let Some(flight) = self.in_flight.land(step) {
            self.land(flight, outcome);
        }
    }

    /// The shard and all KV are gone. Every unfinished request keeps its tokens and waits again, in order of arrival;
    /// what was in flight is ignored when it comes late, and there are no rows left to release.
    pub fn session_lost(&mut self, _now: Micros) {
        self.in_flight.clear();
        self.running.clear();
        self.rows.reset();
        self.pool = BlockPool::new(self.config.total_blocks);
        let handles: Vec<Handle> = self.sequences.handles().collect();
        for handle in handles {
            let sequence = &mut self.sequences[handle];
            sequence.unknown = 0;
            if sequence.place != Place::Waiting {
                sequence.blocks.clear();
                sequence.wait_again();
                self.queue.push(handle, sequence.known());
                self.events.push_back(Event::Preempted { request: handle.request });
            }
        }
    }

    /// The oldest event not polled yet.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A row whose holder ended, was cancelled or was preempted: the shard may forget that epoch of it. No plan that
    /// [`plan_step`](Self::plan_step) returned last or will return names the epoch, so a Filter may go out before or
    /// after the newest plan.
    pub fn poll_release(&mut self) -> Option<(Row, Epoch)> {
        self.rows.poll_release().map(|seat| (seat.row, seat.epoch))
    }

    /// A snapshot, in time proportional to the running rows.
    pub fn stats(&self) -> Stats {
        let prefilling = self.running.iter().filter(|&&handle| self.sequences[handle].is_prefilling()).count();
        let (free, total) = (self.pool.free(), self.pool.total());
        Stats {
            waiting: self.queue.len() as u32,
            running: self.running.len() as u32,
            prefilling: prefilling as u32,
            decoding: (self.running.len() - prefilling) as u32,
            ending: (self.sequences.len() - self.running.len() - self.queue.len()) as u32,
            queued_tokens: self.queue.tokens(),
            blocks: BlockStats { free, held: total - free, total, leaving: self.pool.leaving() },
            steps_in_flight: self.in_flight.len() as u32,
            steps: self.in_flight.steps(),
            preemptions: self.counters.preemptions,
            recomputed_tokens: self.counters.recomputed_tokens,
            finished: self.counters.finished,
        }
    }

    fn check(&self, request: &Request) -> Result<(), Rejected> {
        let prompt = Tokens(u32::try_from(request.prompt.len()).unwrap_or(u32::MAX));
        let (max_new, limit) = (request.max_new_tokens, self.config.max_total_tokens);
        if prompt == Tokens::ZERO {
            return Err(Rejected::EmptyPrompt);
        }
        if max_new == Tokens::ZERO {
            return Err(Rejected::NothingToGenerate);
        }
        if u64::from(prompt.0) + u64::from(max_new.0) > u64::from(limit.0) {
            return Err(Rejected::TooLong { prompt, max_new, limit });
        }
        match self.config.max_concurrent_requests {
            Some(limit) if self.sequences.len() >= limit as usize => Err(Rejected::Overloaded { limit }),
            _ => Ok(()),
        }
    }

    /// Ends a request: the only place where one leaves.
    pub(crate) fn end(&mut self, handle: Handle, reason: FinishReason) {
        self.vacate(handle);
        self.queue.remove(handle);
        if let Some(sequence) = self.sequences.remove(handle) {
            self.counters.finished.count(reason);
            let generated = sequence.generated();
            self.events.push_back(Event::Finished { request: handle.request, reason, generated });
        }
    }

    /// Rows whose last token is on its way are free for this plan; the shard computes the step before it sees the next.
    fn retire(&mut self) {
        let full = |handle: &Handle| self.sequences[*handle].ends_by_length();
        let ending: Vec<Handle> = self.running.iter().copied().filter(full).collect();
        for handle in ending {
            self.vacate(handle);
            self.sequences[handle].place = Place::Ending;
        }
    }

    /// Takes row and blocks from a running sequence; nothing to do for others. Blocks that a step in flight may still
    /// write stay held by that step.
    pub(crate) fn vacate(&mut self, handle: Handle) {
        let sequence = &mut self.sequences[handle];
        let Place::Running(seat) = sequence.place else { return };
        self.rows.give_back(seat);
        if let Ok(place) = self.running.binary_search(&handle) {
            self.running.remove(place);
        }
        // Later steps land later: the last one that holds the sequence is the one to wait for.
        if let Some(flight) = self.in_flight.find(sequence.last_step) {
            sequence.blocks.iter().for_each(|&block| self.pool.hold_for_step(block));
            flight.frees.extend_from_slice(&sequence.blocks);
        }
        sequence.blocks.drain(..).for_each(|block| self.pool.let_go(block));
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.stats().blocks;
        writeln!(
            f,
            "step {}, {} in flight; {} waiting ({} tokens), head {:?}; blocks {} free + {} held ({} leaving) = {}",
            self.in_flight.steps(),
            self.in_flight.len(),
            self.queue.len(),
            self.queue.tokens(),
            self.queue.head().map(|head| head.request.0),
            blocks.free,
            blocks.held,
            blocks.leaving,
            blocks.total,
        )?;
        self.running
            .iter()
            .try_for_each(|&handle| writeln!(f, "  request {}: {:?}", handle.request, self.sequences[handle]))
    }
}
