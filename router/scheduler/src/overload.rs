//! Too much to do: refuse at once what would wait too long, and drop what has waited too long.

use crate::demand::Demand;
use crate::event::FinishReason;
use crate::request::{Overload, OverloadCause, Request};
use crate::scheduler::Scheduler;
use crate::sequences::Handle;
use crate::step_time::{ENOUGH_STEPS, StepShape};
use crate::units::{Blocks, Micros, Tokens};

/// `retry_after` while nothing is known of what steps cost.
const UNKNOWN_DRAIN: Micros = Micros(1_000_000);

/// Waiting requests whose demand is looked at again in each plan.
const LOOKED_AT: usize = 4;

/// Under `fair`, a tenant below its share is let in beyond the limit of requests, up to so many times the limit.
const BEYOND: usize = 4;

impl Scheduler {
    /// May one more request wait? Under `fair` a full queue makes place for a tenant below its share: the newest waiting
    /// request of the most loaded tenant leaves.
    pub(crate) fn check_load(&mut self, request: &Request, now: Micros) -> Result<(), Overload> {
        let retry_after = self.drain_time();
        self.check_deadline(request, now).map_err(|cause| Overload { cause, retry_after })?;
        let Some(cause) = self.is_full(request) else { return Ok(()) };
        let newest = self.queue.policy.makes_place_for(request.tenant);
        match newest.filter(|&newest| self.leaves_enough(newest, request)) {
            Some(newest) => self.end(newest, FinishReason::Displaced),
            None if self.may_come_beyond(request, &cause) => {}
            None => return Err(Overload { cause, retry_after }),
        }
        Ok(())
    }

    fn is_full(&self, request: &Request) -> Option<OverloadCause> {
        let (queued, tokens) = (self.queue.tokens(), Tokens(request.prompt.len() as u32));
        if let Some(limit) = self.config.max_queue_tokens
            && !fits(queued, tokens, limit)
        {
            return Some(OverloadCause::QueueTokens { queued, tokens, limit });
        }
        let limit = self.config.max_concurrent_requests?;
        (self.sequences.len() >= limit as usize).then_some(OverloadCause::Requests { limit })
    }

    /// The newcomer fits when this one has left.
    fn leaves_enough(&self, newest: Handle, request: &Request) -> bool {
        let left = self.queue.get(newest).map_or(0, |waiting| u64::from(waiting.uncached.0));
        let (queued, tokens) = (self.queue.tokens() - left, Tokens(request.prompt.len() as u32));
        self.config.max_queue_tokens.is_none_or(|limit| fits(queued, tokens, limit))
    }

    /// All of a flood may be running, so that nobody waits who could leave.
    fn may_come_beyond(&self, request: &Request, cause: &OverloadCause) -> bool {
        let OverloadCause::Requests { limit } = cause else { return false };
        let room = self.sequences.len() < BEYOND * *limit as usize;
        room && self.queue.policy.is_below_share(request.tenant)
    }

    /// Its first token comes after the queue and its own prompt.
    fn check_deadline(&self, request: &Request, now: Micros) -> Result<(), OverloadCause> {
        let Some(deadline) = request.deadline else { return Ok(()) };
        let own = if self.times.steps() >= ENOUGH_STEPS { self.prefill_time(request) } else { Micros::ZERO };
        let queue = self.time_for_queue().unwrap_or(Micros::ZERO);
        let (predicted, left) = (queue + own, deadline.saturating_sub(now));
        if predicted >= left { Err(OverloadCause::Deadline { predicted, left }) } else { Ok(()) }
    }

    fn prefill_time(&self, request: &Request) -> Micros {
        let mut shape = StepShape::default();
        shape.add_chunk(Tokens::ZERO, Tokens(request.prompt.len() as u32), true);
        self.times.cost().predict(shape)
    }

    /// When the queue is predicted to be drained.
    pub fn drain_time(&self) -> Micros {
        self.time_for_queue().unwrap_or(UNKNOWN_DRAIN)
    }

    /// `None` before there is anything to go by.
    fn time_for_queue(&self) -> Option<Micros> {
        if self.queue.is_empty() {
            return Some(Micros::ZERO);
        }
        let known = self.times.steps() >= ENOUGH_STEPS;
        let computing = || self.queue.demand().time(self.times.cost(), self.rows_that_fit(), &self.config);
        known.then(|| self.pace.on_the_clock(computing()))
    }

    /// Rows that the pool has blocks for, if all are as long as those that run now.
    fn rows_that_fit(&self) -> u32 {
        let held = self.kv.total() - self.kv.available();
        let running = self.running.len() as u64;
        let fit = (running * u64::from(self.kv.total().0)).checked_div(u64::from(held.0)).unwrap_or(u64::MAX);
        fit.clamp(1, u64::from(self.config.max_batch_size)) as u32
    }

    /// What is known of lengths and of the cache changes while requests wait. A few are looked at again in each plan, so
    /// that what this costs does not grow with the queue.
    pub(crate) fn look_at_demands(&mut self) {
        for _ in 0..LOOKED_AT.min(self.queue.len()) {
            let Some(handle) = self.queue.next_to_look_at() else { return };
            let (_, demand) = self.demand_of(handle);
            self.queue.expect(handle, demand);
        }
    }

    /// What a waiting request must compute before its next token, and all that it asks of the steps to come.
    pub(crate) fn demand_of(&mut self, handle: Handle) -> (Tokens, Demand) {
        self.find(handle);
        let sequence = &self.sequences[handle];
        let known = sequence.known();
        let uncached = known - sequence.at_hand(Blocks(self.found.len() as u32), self.config.block_size);
        let to_come = self.lengths.expected(sequence.tenant, sequence.max_new, sequence.sampled());
        (uncached, Demand::of(known, uncached, to_come))
    }

    /// Ends requests that never ran and are of no use any more; `plan_step` does it too.
    pub fn drop_late(&mut self, now: Micros) {
        while let Some(&(deadline, handle)) = self.deadlines.first() {
            if deadline > now {
                return;
            }
            self.end(handle, FinishReason::DeadlineMissed);
        }
    }

    /// The request runs, or has ended: its deadline does not matter any more.
    pub(crate) fn forget_deadline(&mut self, handle: Handle) {
        if let Some(deadline) = self.sequences.get(handle).and_then(|sequence| sequence.deadline) {
            self.deadlines.remove(&(deadline, handle));
        }
    }
}

/// One request into an empty queue is always taken, whatever its length.
fn fits(queued: u64, tokens: Tokens, limit: u64) -> bool {
    queued == 0 || queued + u64::from(tokens.0) <= limit
}
