//! A step has landed: its samples become tokens, its blocks become free.

use crate::event::{Event, FinishReason};
use crate::in_flight::{Flight, Member};
use crate::kv_cache::Published;
use crate::plan::{Sample, StepOutcome};
use crate::scheduler::Scheduler;
use crate::sequence::Place;
use crate::sequences::Handle;
use crate::units::{Blocks, Micros, Row, TokenId, Tokens};

impl Scheduler {
    /// Members may have been cancelled, finished or preempted since the plan was made: those that ended are passed
    /// over, those that wait again keep their token.
    pub(crate) fn land(&mut self, mut flight: Flight, outcome: StepOutcome, now: Micros) {
        if !matches!(outcome, StepOutcome::Done { .. }) {
            // Whether the copies to host memory were made before it failed, nobody knows.
            flight.swapped_out.iter().for_each(|handle| self.distrust_swapped(*handle));
        }
        match outcome {
            StepOutcome::Done { samples, failed, took } => {
                self.times.learn(flight.shape, took);
                self.pace.landed(flight.planned, took, now);
                self.step_limit.landed(self.config.most_step_tokens());
                self.fail_rows(&flight.members, &failed);
                self.fail_samples(&flight.members, &samples);
                self.publish(&mut flight);
                self.take_samples(&flight.members, &samples);
            }
            StepOutcome::Failed => flight.members.iter().for_each(|member| self.fail(member.handle)),
            StepOutcome::OutOfMemory if self.step_limit.exceeded(Tokens(flight.shape.tokens as u32)) => {
                flight.members.iter().for_each(|member| self.recompute(member));
            }
            StepOutcome::OutOfMemory => flight.members.iter().for_each(|member| self.fail(member.handle)),
        }
        flight.frees.into_iter().for_each(|block| self.kv.step_landed(block));
        if self.sequences.len() == 0 {
            self.pace.rests();
        }
    }

    fn fail_rows(&mut self, members: &[Member], failed: &[Row]) {
        for row in failed {
            let Some(member) = members.iter().find(|member| member.seat.row == *row) else { continue };
            if self.has_left(member) {
                self.distrust_swapped(member.handle);
            } else {
                self.fail(member.handle);
            }
        }
    }

    /// What the step computed may be found from now on. A member that lost its row meanwhile has no table any more, but
    /// for one whose last step this is.
    fn publish(&mut self, flight: &mut Flight) {
        let block_size = self.config.block_size;
        for member in &flight.members {
            let Some(sequence) = self.sequences.get_mut(member.handle) else { continue };
            let to = member.end.0 / block_size.0;
            let (root, tokens) = (&sequence.root, sequence.tokens.as_slice());
            match (sequence.place, &mut sequence.left_behind) {
                (Place::Running(seat), _) if seat == member.seat && to > sequence.published.0 => {
                    let (blocks, from) = (sequence.blocks.as_mut_slice(), sequence.published.0);
                    let of = Published { root, tokens, blocks, from, to };
                    sequence.published = Blocks(self.kv.publish(of, Some(&mut self.replaced)));
                }
                (Place::Ending, Some((blocks, published))) if to > published.0 => {
                    self.kv.publish(Published { root, tokens, blocks, from: published.0, to }, None);
                    *published = Blocks(to);
                }
                _ => {}
            }
            // Its own copy may be in the table of a step in flight.
            let last = self.in_flight.find(sequence.last_step);
            let frees = last.map_or(&mut flight.frees, |later| &mut later.frees);
            for block in self.replaced.drain(..) {
                self.kv.hold_for_step(block);
                frees.push(block);
                self.kv.let_go(block);
            }
        }
    }

    /// A sample that is missing counts as failed: a request must not wait for it for ever.
    fn fail_samples(&mut self, members: &[Member], samples: &[Sample]) {
        for (index, member) in members.iter().filter(|member| member.samples).enumerate() {
            if matches!(samples.get(index), Some(Sample::Token(_))) {
                continue;
            }
            if self.has_left(member) {
                self.lose_sample(member);
                self.distrust_swapped(member.handle);
            } else {
                self.fail(member.handle);
            }
        }
    }

    fn take_samples(&mut self, members: &[Member], samples: &[Sample]) {
        for (index, member) in members.iter().filter(|member| member.samples).enumerate() {
            if let Some(&Sample::Token(token)) = samples.get(index) {
                self.take_token(member.handle, token, index as u32);
            }
        }
    }

    fn take_token(&mut self, handle: Handle, token: TokenId, sample: u32) {
        let Some(sequence) = self.sequences.get_mut(handle) else { return };
        sequence.unknown = sequence.unknown.saturating_sub(1);
        let index = sequence.generated().0;
        sequence.tokens.push(token);
        self.events.push_back(Event::Token { request: handle.request, token, index, sample });
        if !sequence.ignore_eos && self.config.eos.contains(&token) {
            self.end(handle, FinishReason::EndOfSequence);
        } else if sequence.is_full() {
            self.end(handle, FinishReason::Length);
        } else {
            let (tenant, max_new, generated) = (sequence.tenant, sequence.max_new, sequence.generated());
            sequence.passed = self.lengths.pass(tenant, max_new, generated, sequence.passed);
            if sequence.place == Place::Waiting {
                self.queue.grow(handle);
            }
        }
    }

    /// It waits again, or has another seat already: what became of the old one is of no interest.
    fn has_left(&self, member: &Member) -> bool {
        self.sequences.get(member.handle).is_some_and(|sequence| match sequence.place {
            Place::Running(seat) => seat != member.seat,
            Place::Waiting => true,
            Place::Ending => false,
        })
    }

    /// A token that was expected does not come.
    fn lose_sample(&mut self, member: &Member) {
        if let Some(sequence) = self.sequences.get_mut(member.handle) {
            sequence.unknown = sequence.unknown.saturating_sub(1);
        }
    }

    /// What the step was to compute for this member does not exist. It waits again, unless it does so already.
    fn recompute(&mut self, member: &Member) {
        if member.samples {
            self.lose_sample(member);
        }
        if self.sequences.get(member.handle).is_none() {
            return;
        }
        if self.has_left(member) {
            self.distrust_swapped(member.handle);
        } else {
            self.wait_again(member.handle);
        }
    }

    /// What went to host memory when the request was preempted lacks what a step was to compute before that.
    fn distrust_swapped(&mut self, handle: Handle) {
        let swapped = self.sequences.get_mut(handle).and_then(|sequence| sequence.swapped.take());
        let Some(swapped) = swapped else { return };
        self.host.give_back(swapped);
        let (uncached, demand) = self.demand_of(handle);
        self.queue.recount(handle, uncached, demand);
    }

    fn fail(&mut self, handle: Handle) {
        if self.sequences.get_mut(handle).is_some() {
            self.end(handle, FinishReason::Failed);
        }
    }
}
