//! The scheduler itself: its commands, and how a sequence leaves its row.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::admission::watermark;
use crate::chunk_order::Turns;
use crate::config::Config;
use crate::event::{Event, FinishReason};
use crate::forecast::Forecast;
use crate::gate::Gate;
use crate::host_pool::HostPool;
use crate::in_flight::InFlight;
use crate::kv_cache::KvCache;
use crate::lengths::Lengths;
use crate::pace::Pace;
use crate::plan::{StepOutcome, StepPlan, SwapOut};
use crate::preemption::preempt_at;
use crate::queue::{Queue, Waiting};
use crate::request::{Rejected, Request};
use crate::rows::Rows;
use crate::sequence::{Place, Sequence};
use crate::sequences::{Handle, Sequences};
use crate::stats::{BlockStats, Counters, PrefixStats, Stats};
use crate::step_limit::StepLimit;
use crate::step_time::{StepCost, StepTimes};
use crate::units::{BlockId, Blocks, Epoch, Micros, RequestId, Row, StepId, Tokens};

/// Owns every unfinished request and every KV block; decides what each step computes.
///
/// Commands go in ([`submit`](Self::submit), [`cancel`](Self::cancel), [`stop`](Self::stop),
/// [`complete_step`](Self::complete_step), [`session_lost`](Self::session_lost)); plans, events and released rows come
/// out and must be polled, or they pile up. Nothing here waits, reads a clock or does I/O: the same commands give the
/// same plans and events, byte for byte. Moments are arguments, from one clock that never goes back.
///
/// `{:?}` prints one short line per running request: rows, progress, blocks, steps in flight.
#[derive(Clone, Serialize, Deserialize)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) sequences: Sequences,
    /// Who holds a row, in order of arrival.
    pub(crate) running: Vec<Handle>,
    pub(crate) queue: Queue,
    /// Deadlines of requests that never ran.
    pub(crate) deadlines: BTreeSet<(Micros, Handle)>,
    pub(crate) gate: Gate,
    pub(crate) turns: Turns,
    pub(crate) rows: Rows,
    pub(crate) kv: KvCache,
    pub(crate) host: HostPool,
    /// Copies for the next plan, which are not in one yet.
    pub(crate) swaps_out: Vec<SwapOut>,
    /// Whose they are.
    pub(crate) swapping_out: Vec<Handle>,
    pub(crate) watermark: Blocks,
    pub(crate) lengths: Lengths,
    /// Made anew in each plan that needs it.
    #[serde(skip)]
    pub(crate) forecast: Option<Forecast>,
    pub(crate) times: StepTimes,
    pub(crate) pace: Pace,
    pub(crate) step_limit: StepLimit,
    pub(crate) in_flight: InFlight,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    /// Blocks ran out in the plan being made.
    pub(crate) short: bool,
    /// Somebody gave way to this request in the plan being made: nobody else enters.
    pub(crate) room_for: Option<Handle>,
    pub(crate) last_plan_blocks: usize,
    // Kept for their allocations; what they hold between calls means nothing.
    #[serde(skip)]
    pub(crate) candidates: Vec<Handle>,
    #[serde(skip)]
    pub(crate) publishing: Vec<Handle>,
    #[serde(skip)]
    pub(crate) found: Vec<BlockId>,
    #[serde(skip)]
    pub(crate) replaced: Vec<BlockId>,
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
            queue: Queue::new(&config),
            deadlines: BTreeSet::new(),
            gate: Gate::new(&config),
            turns: Turns::default(),
            rows: Rows::new(config.max_batch_size),
            kv: KvCache::new(&config),
            host: HostPool::new(config.host_blocks),
            swaps_out: Vec::new(),
            swapping_out: Vec::new(),
            watermark: watermark(&config),
            lengths: Lengths::default(),
            forecast: None,
            times: StepTimes::default(),
            pace: Pace::default(),
            step_limit: StepLimit::default(),
            in_flight: InFlight::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            short: false,
            room_for: None,
            last_plan_blocks: 0,
            candidates: Vec::new(),
            publishing: Vec::new(),
            found: Vec::new(),
            replaced: Vec::new(),
            config,
        }
    }

    /// Takes a request to wait for a row; it may be in the very next plan. Ids grow in order of arrival.
    ///
    /// # Errors
    ///
    /// Refuses what could never finish here, and, while there is too much to do already, what would wait too long.
    pub fn submit(&mut self, request: Request, now: Micros) -> Result<RequestId, Rejected> {
        self.check(&request)?;
        self.check_load(&request, now).map_err(Rejected::Overloaded)?;
        let id = self.sequences.next_id();
        let preempt_at = self.config.preempt_once_seed.and_then(|seed| preempt_at(seed, id, request.max_new_tokens));
        let handle = self.sequences.insert(Sequence::new(request, now, preempt_at));
        if let Some(deadline) = self.sequences[handle].deadline {
            self.deadlines.insert((deadline, handle));
        }
        self.enqueue(handle);
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
    /// `None`: nothing can run now, or two steps are in flight. Ask again after a `submit` or a `complete_step`, or when
    /// [`wakes_at`](Self::wakes_at) says. Also after `None`, rows may be released and events be ready.
    pub fn plan_step(&mut self, now: Micros) -> Option<StepPlan> {
        self.drop_late(now);
        if self.in_flight.is_full() {
            return None;
        }
        self.forecast = None;
        self.retire();
        self.preempt_once();
        self.queue.policy.begin_plan(now, self.running.len());
        self.make_room();
        self.give_way(now);
        let plan = self.pack(now);
        self.look_at_demands();
        plan
    }

    /// When `plan_step` has something to do although nothing was submitted and nothing has landed: a deadline passes, or
    /// a batch that is being collected is due. `None`: never.
    pub fn wakes_at(&self) -> Option<Micros> {
        let deadline = self.deadlines.first().map(|(moment, _)| *moment);
        let batch = if self.running.is_empty() { self.queue.policy.opens_at() } else { None };
        deadline.into_iter().chain(batch).min()
    }

    /// Takes what came of a step. Outcomes come in the order of the plans; any other step (one of a lost session) is
    /// ignored.
    pub fn complete_step(&mut self, step: StepId, outcome: StepOutcome, now: Micros) {
        if let Some(flight) = self.in_flight.land(step) {
            self.land(flight, outcome, now);
        }
    }

    /// The shard and all KV are gone. Every unfinished request keeps its tokens and waits again, in order of arrival;
    /// what was in flight is ignored when it comes late, and there are no rows left to release.
    pub fn session_lost(&mut self, _now: Micros) {
        self.in_flight.clear();
        self.running.clear();
        self.rows.reset();
        self.kv.reset();
        self.host.reset();
        self.swaps_out.clear();
        self.swapping_out.clear();
        let handles: Vec<Handle> = self.sequences.handles().collect();
        for handle in handles {
            let sequence = &mut self.sequences[handle];
            sequence.unknown = 0;
            sequence.swapped = None;
            if sequence.place != Place::Waiting {
                if sequence.is_running() {
                    self.queue.policy.seated(sequence.tenant, false);
                }
                sequence.wait_again();
                self.enqueue(handle);
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

    /// What steps cost, as far as it was learned.
    pub fn step_cost(&self) -> &StepCost {
        self.times.cost()
    }

    /// The request that samples at `place` of a step in flight, and the position its token will have.
    pub(crate) fn next_position(&self, step: StepId, place: u32) -> Option<(RequestId, Tokens)> {
        let member = self.in_flight.sampling(step).nth(place as usize)?;
        let sequence = self.sequences.get(member.handle)?;
        Some((member.handle.request, sequence.known()))
    }

    pub(crate) fn ignores_eos(&self, request: RequestId) -> bool {
        let sequence = self.sequences.find(request).and_then(|handle| self.sequences.get(handle));
        sequence.is_some_and(|sequence| sequence.ignore_eos)
    }

    /// The most tokens of a step, if memory ran out in a larger one.
    pub fn step_limit(&self) -> Option<Tokens> {
        self.step_limit.most()
    }

    /// A snapshot, in time proportional to the running rows.
    pub fn stats(&self) -> Stats {
        let prefilling = self.running.iter().filter(|&&handle| self.sequences[handle].is_prefilling()).count();
        let (free, cached, total) = (self.kv.free(), self.kv.cached(), self.kv.total());
        let leaving = self.kv.leaving();
        Stats {
            waiting: self.queue.len() as u32,
            running: self.running.len() as u32,
            prefilling: prefilling as u32,
            decoding: (self.running.len() - prefilling) as u32,
            ending: (self.sequences.len() - self.running.len() - self.queue.len()) as u32,
            queued_tokens: self.queue.tokens(),
            blocks: BlockStats { free, cached, held: total - free - cached, total, leaving },
            steps_in_flight: self.in_flight.len() as u32,
            steps: self.in_flight.steps(),
            preemptions: self.counters.preemptions,
            recomputed_tokens: self.counters.recomputed_tokens,
            swapped_blocks: self.counters.swapped_blocks,
            host_blocks_used: self.host.used(),
            prefix: PrefixStats { evicted_blocks: self.kv.evicted, ..self.counters.prefix },
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
        Ok(())
    }

    /// Puts a request that holds nothing into the queue.
    pub(crate) fn enqueue(&mut self, handle: Handle) {
        let (uncached, demand) = self.demand_of(handle);
        let sequence = &self.sequences[handle];
        let waiting = Waiting {
            uncached,
            demand,
            tenant: sequence.tenant,
            priority: sequence.priority,
            arrived: sequence.arrived,
            preempted: !sequence.never_ran(),
            skips: 0,
            deferred: None,
        };
        self.queue.push(handle, waiting);
    }

    /// Ends a request: the only place where one leaves.
    pub(crate) fn end(&mut self, handle: Handle, reason: FinishReason) {
        self.vacate(handle);
        self.queue.remove(handle);
        self.forget_deadline(handle);
        if let Some(sequence) = self.sequences.remove(handle) {
            self.counters.finished.count(reason);
            let generated = sequence.generated();
            if matches!(reason, FinishReason::Length | FinishReason::EndOfSequence | FinishReason::StopString) {
                self.lengths.learn(sequence.tenant, sequence.max_new, sequence.generated());
            }
            if let Some(swapped) = sequence.swapped {
                self.host.give_back(swapped);
            }
            self.events.push_back(Event::Finished { request: handle.request, reason, generated });
        }
    }

    /// Rows whose last token is on its way are free for this plan; the shard computes the step before it sees the next.
    fn retire(&mut self) {
        let full = |handle: &Handle| self.sequences[*handle].ends_by_length();
        let ending: Vec<Handle> = self.running.iter().copied().filter(full).collect();
        for handle in ending {
            let sequence = &mut self.sequences[handle];
            sequence.left_behind = Some((sequence.blocks.clone(), sequence.published));
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
        self.queue.policy.seated(sequence.tenant, false);
        if let Ok(place) = self.running.binary_search(&handle) {
            self.running.remove(place);
        }
        // Later steps land later: the last one that holds the sequence is the one to wait for.
        if let Some(flight) = self.in_flight.find(sequence.last_step) {
            sequence.blocks.iter().for_each(|&block| self.kv.hold_for_step(block));
            flight.frees.extend_from_slice(&sequence.blocks);
        }
        sequence.published = Blocks::ZERO;
        sequence.shared = Blocks::ZERO;
        sequence.blocks.drain(..).for_each(|block| self.kv.let_go(block));
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.stats().blocks;
        writeln!(
            f,
            "step {}, {} in flight; {} waiting ({} tokens), head {:?}; blocks {} free + {} cached + {} held ({} leaving) = {}",
            self.in_flight.steps(),
            self.in_flight.len(),
            self.queue.len(),
            self.queue.tokens(),
            self.queue.head(Micros::ZERO).map(|head| head.request.0),
            blocks.free,
            blocks.cached,
            blocks.held,
            blocks.leaving,
            blocks.total,
        )?;
        self.running
            .iter()
            .try_for_each(|&handle| writeln!(f, "  request {}: {:?}", handle.request, self.sequences[handle]))
    }
}
