//! A step has landed: its samples become tokens, its blocks become free.

use crate::event::{Event, FinishReason};
use crate::in_flight::{Flight, Member};
use crate::plan::{Sample, StepOutcome};
use crate::scheduler::Scheduler;
use crate::sequence::Place;
use crate::sequences::Handle;
use crate::units::{Row, TokenId};

impl Scheduler {
    /// Members may have been cancelled, finished or preempted since the plan was made: those that ended are passed
    /// over, those that wait again keep their token.
    pub(crate) fn land(&mut self, flight: Flight, outcome: StepOutcome) {
        match outcome {
            StepOutcome::Done { samples, failed } => {
                self.fail_rows(&flight.members, &failed);
                self.take_samples(&flight.members, &samples);
            }
            StepOutcome::Failed => flight.members.iter().for_each(|member| self.fail(member.handle)),
        }
        flight.frees.into_iter().for_each(|block| self.pool.step_landed(block));
    }

    fn fail_rows(&mut self, members: &[Member], failed: &[Row]) {
        for row in failed {
            if let Some(member) = members.iter().find(|member| member.row == *row) {
                self.fail(member.handle);
            }
        }
    }

    /// A sample that is missing counts as failed: a request must not wait for it for ever.
    fn take_samples(&mut self, members: &[Member], samples: &[Sample]) {
        for (index, member) in members.iter().filter(|member| member.samples).enumerate() {
            match samples.get(index) {
                Some(&Sample::Token(token)) => self.take_token(member.handle, token, index as u32),
                Some(Sample::Failed) | None => self.fail(member.handle),
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
        } else if sequence.place == Place::Waiting {
            self.queue.grow(handle);
        }
    }

    fn fail(&mut self, handle: Handle) {
        if self.sequences.get_mut(handle).is_some() {
            self.end(handle, FinishReason::Failed);
        }
    }
}
