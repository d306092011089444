//! Too much to do: refuse at once what would wait too long, and drop what has waited too long.

use crate::event::FinishReason;
use crate::request::{Overload, OverloadCause, Request};
use crate::scheduler::Scheduler;
use crate::sequences::Handle;
use crate::units::{Micros, Tokens};

/// `retry_after` while nothing is known of how fast the queue is served.
const UNKNOWN_DRAIN: Micros = Micros(1_000_000);

impl Scheduler {
    /// May one more request wait? Under `fair` a full queue makes place for a tenant below its share.
    pub(crate) fn check_load(&mut self, request: &Request, now: Micros) -> Result<(), Overload> {
        let queued = self.queue.tokens();
        let retry_after = self.rate.time_for(queued).unwrap_or(UNKNOWN_DRAIN);
        let refuse = |cause| Err(Overload { cause, retry_after });
        let tokens = Tokens(request.prompt.len() as u32);
        // One request into an empty queue is always taken, whatever its length.
        if let Some(limit) = self.config.max_queue_tokens
            && queued > 0
            && queued + u64::from(tokens.0) > limit
        {
            return refuse(OverloadCause::QueueTokens { queued, tokens, limit });
        }
        if let (Some(deadline), Some(predicted)) = (request.deadline, self.rate.time_for(queued)) {
            let left = deadline.saturating_sub(now);
            if predicted >= left {
                return refuse(OverloadCause::Deadline { predicted, left });
            }
        }
        match self.config.max_concurrent_requests {
            Some(limit) if self.sequences.len() >= limit as usize => {
                let Some(newest) = self.queue.policy.makes_place_for(request.tenant) else {
                    return refuse(OverloadCause::Requests { limit });
                };
                self.end(newest, FinishReason::Displaced);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// When the queue is predicted to be drained.
    pub fn drain_time(&self) -> Micros {
        self.rate.time_for(self.queue.tokens()).unwrap_or(UNKNOWN_DRAIN)
    }

    /// Ends requests that never ran and are of no use any more.
    pub(crate) fn drop_late(&mut self, now: Micros) {
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
