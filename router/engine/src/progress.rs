//! How far a generation has come: for whoever must say where its time went, however it ended.
//!
//! Kept only for requests that ask for it: the others cost nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headrace_scheduler::Tokens;
use headrace_shard::StepTiming;
use tokio::time::Instant;

/// Shared between a generation's caller and the driver, who writes it.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Reached>);

/// What was reached so far. `None`: not yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    /// The engine was asked.
    pub submitted: Option<Instant>,
    /// It first got a row.
    pub admitted: Option<Instant>,
    pub first_token: Option<Instant>,
    pub last_token: Option<Instant>,
    pub generated: Tokens,
    /// Prompt tokens whose KV was in the prefix cache when it first got a row.
    pub cached: Tokens,
    /// How often it gave its row back and waited again.
    pub preemptions: u32,
    /// The shard's part before the first token, and after it.
    pub prefill: ShardWork,
    pub decode: ShardWork,
}

/// Steps that computed something of one request, and what they cost the shard: other requests of the same steps included.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardWork {
    /// When the first of them began and the last one ended, placed by when their results came.
    pub span: Option<(Instant, Instant)>,
    pub steps: u32,
    pub inbox: Duration,
    pub forward: Duration,
    pub sampling: Duration,
}

impl Progress {
    pub fn reached(&self) -> Reached {
        *self.lock()
    }

    pub(crate) fn submitted(&self, at: Instant) {
        self.lock().submitted = Some(at);
    }

    pub(crate) fn admitted(&self, at: Instant, cached: Tokens) {
        let mut reached = self.lock();
        reached.admitted = Some(at);
        reached.cached = cached;
    }

    pub(crate) fn token(&self, at: Instant) {
        let mut reached = self.lock();
        reached.first_token.get_or_insert(at);
        reached.last_token = Some(at);
        reached.generated += Tokens(1);
    }

    pub(crate) fn preempted(&self) {
        self.lock().preemptions += 1;
    }

    /// A step that computed something of the request landed. Before the step's tokens are delivered: the step that
    /// brings the first token is still part of the prefill.
    pub(crate) fn landed(&self, timing: StepTiming, at: Instant) {
        let mut reached = self.lock();
        let work = match reached.first_token {
            None => &mut reached.prefill,
            Some(_) => &mut reached.decode,
        };
        work.add(timing, at);
    }

    /// Every change is made whole, so poison means nothing here.
    fn lock(&self) -> MutexGuard<'_, Reached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShardWork {
    fn add(&mut self, timing: StepTiming, landed: Instant) {
        let micros = |count: u32| Duration::from_micros(u64::from(count));
        let (forward, sampling) = (micros(timing.forward_us), micros(timing.sampling_us));
        let began = landed.checked_sub(forward + sampling).unwrap_or(landed);
        let first = self.span.map_or(began, |(first, _)| first.min(began));
        self.span = Some((first, landed));
        self.steps += 1;
        self.inbox += micros(timing.inbox_us);
        self.forward += forward;
        self.sampling += sampling;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: StepTiming = StepTiming { inbox_us: 1, forward_us: 700, sampling_us: 300 };

    #[tokio::test(start_paused = true)]
    async fn steps_before_the_first_token_are_the_prefill_and_those_after_it_the_decode() {
        let progress = Progress::default();
        let began = Instant::now();
        for token in [false, true, true, true] {
            tokio::time::advance(Duration::from_millis(2)).await;
            progress.landed(TIMING, Instant::now());
            if token {
                progress.token(Instant::now());
            }
        }
        let reached = progress.reached();
        assert_eq!((reached.prefill.steps, reached.decode.steps, reached.generated), (2, 2, Tokens(3)));
        let from_start = |moment: Instant| (moment - began).as_millis();
        let spans = [reached.prefill.span, reached.decode.span];
        let spans = spans.map(|span| span.map(|(first, last)| (from_start(first), from_start(last))));
        assert_eq!(spans, [Some((1, 4)), Some((5, 8))]);
        assert_eq!(reached.decode.forward, Duration::from_micros(1400));
    }
}
