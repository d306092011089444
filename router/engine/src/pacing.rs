//! When the next step goes out. Pure: moments are arguments.
//!
//! Two steps may be in flight, so that the shard never waits for the router. But a step that is queued cannot take a
//! newcomer any more, so it is queued as late as possible: when the running step's predicted end is nearer than a lead
//! that covers the way to the shard. Where others compete for the cores, the way is sometimes longer than it mostly is:
//! the shard says how long each step waited for its turn, and the lead grows until nearly all of them do wait.

use std::collections::VecDeque;

use headrace_scheduler::{Micros, StepPlan, Tokens};
use headrace_shard::StepTiming;

/// Shortest lead: timers and the reactor are about a millisecond coarse.
const MIN_LEAD: Micros = Micros(2_000);
/// The lead in hops.
const LEAD_HOPS: u64 = 3;
/// A queued step that waited less for its turn was nearly too late.
const ENOUGH_WAIT: Micros = Micros(300);
/// What the lead grows by after such a step, and at most.
const GROWTH: Micros = Micros(500);
const MOST_GROWTH: Micros = Micros(10_000);
/// What it loses of that after any other: one part in so many. So about one step in twenty may be nearly late.
const DECAY: u64 = 32;
/// A step's weight in a smoothed time is one in this many.
const SMOOTHING: u64 = 8;

/// Predicts the end of the step under way from steps like it.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    /// Smoothed overhead of the way to the shard and back.
    hop: Option<Micros>,
    /// What steps that came nearly too late have added to the lead.
    growth: Micros,
    decode: StepTimes,
    prefill: StepTimes,
    /// Oldest first.
    in_flight: VecDeque<Sent>,
    /// When the last result came.
    landed: Micros,
    /// There was something to do since then. While there is not, the shard stands idle for want of work.
    at_work: bool,
}

/// Where a step's time went, as seen from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// How long it kept the shard busy: since it was sent or the one before it landed.
    pub busy: Micros,
    /// How long the shard computed nothing, for the router's or the way's sake.
    pub overhead: Micros,
}

/// What a step's time depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub kind: Kind,
    /// Of the forward pass.
    pub tokens: Tokens,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Prefill,
    Decode,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    shape: Shape,
    at: Micros,
    /// How long the shard had stood idle before, although there was work.
    idle: Micros,
    /// Another one was under way.
    queued: bool,
}

impl Shape {
    pub(crate) fn of(plan: &StepPlan) -> Self {
        let kind = if plan.chunks.is_empty() { Kind::Decode } else { Kind::Prefill };
        Self { kind, tokens: plan.tokens() }
    }
}

impl Pacing {
    pub(crate) fn sent(&mut self, shape: Shape, now: Micros) {
        let idle = match self.at_work && self.in_flight.is_empty() {
            true => now.saturating_sub(self.landed),
            false => Micros::ZERO,
        };
        self.at_work = true;
        let queued = !self.in_flight.is_empty();
        self.in_flight.push_back(Sent { shape, at: now, idle, queued });
    }

    /// Nothing can be sent now: if the shard stands idle, that is nobody's fault.
    pub(crate) fn rest(&mut self) {
        self.at_work = false;
    }

    /// The oldest step's result came. Learns only from steps that `computed`: a failed one says nothing of time.
    pub(crate) fn landed(&mut self, timing: StepTiming, computed: bool, now: Micros) -> Spent {
        let Some(sent) = self.in_flight.pop_front() else { return Spent::default() };
        let busy = now.saturating_sub(sent.at.max(self.landed));
        let work = Micros(u64::from(timing.forward_us) + u64::from(timing.sampling_us));
        self.landed = now;
        if computed {
            let accounted = work + Micros(u64::from(timing.inbox_us));
            let hop = now.saturating_sub(sent.at).saturating_sub(accounted);
            self.hop = Some(self.hop.map_or(hop, |old| drift(old, hop)));
            self.times(sent.shape.kind).learn(sent.shape.tokens, work);
            if sent.queued {
                self.growth = match Micros(u64::from(timing.inbox_us)) < ENOUGH_WAIT {
                    true => MOST_GROWTH.min(self.growth + GROWTH),
                    false => Micros(self.growth.0 - self.growth.0.div_ceil(DECAY)),
                };
            }
        }
        Spent { busy, overhead: sent.idle + busy.saturating_sub(work) }
    }

    /// The session is over: nothing is in flight. What was learnt of times still holds.
    pub(crate) fn session_lost(&mut self) {
        self.in_flight.clear();
    }

    /// When the step after the one under way is to be sent. `None`: at once, for nothing is under way, or nothing is
    /// known of steps like it.
    pub(crate) fn due(&self) -> Option<Micros> {
        let running = self.in_flight.front()?;
        let times = match running.shape.kind {
            Kind::Prefill => &self.prefill,
            Kind::Decode => &self.decode,
        };
        let hop = self.hop?;
        // A step that was queued began about one hop before the result of the one before it got here.
        let began = running.at.max(self.landed.saturating_sub(hop));
        let end = began + times.predict(running.shape.tokens)?;
        let lead = MIN_LEAD.max(Micros(LEAD_HOPS * hop.0)) + self.growth;
        Some(end.saturating_sub(lead))
    }

    /// The smoothed overhead of the way to the shard and back.
    pub(crate) fn hop(&self) -> Option<Micros> {
        self.hop
    }

    fn times(&mut self, kind: Kind) -> &mut StepTimes {
        match kind {
            Kind::Prefill => &mut self.prefill,
            Kind::Decode => &mut self.decode,
        }
    }
}

/// Smoothed step times by size: one bucket for each power of two of tokens.
#[derive(Debug, Default)]
struct StepTimes {
    buckets: [Option<Micros>; u32::BITS as usize],
}

impl StepTimes {
    fn learn(&mut self, tokens: Tokens, work: Micros) {
        let bucket = &mut self.buckets[bucket(tokens)];
        *bucket = Some(match *bucket {
            // Too late a prediction leaves the shard idle, too early a one only delays a newcomer: fall fast.
            Some(old) if work < old => Micros((old.0 + work.0) / 2),
            Some(old) => drift(old, work),
            None => work,
        });
    }

    /// The time of steps of this size, or of the next smaller size known: rather too short than too long.
    fn predict(&self, tokens: Tokens) -> Option<Micros> {
        self.buckets[..=bucket(tokens)].iter().rev().find_map(|time| *time)
    }
}

fn bucket(tokens: Tokens) -> usize {
    tokens.0.max(1).ilog2() as usize
}

fn drift(old: Micros, new: Micros) -> Micros {
    Micros((old.0 * (SMOOTHING - 1) + new.0) / SMOOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECODE: Shape = Shape { kind: Kind::Decode, tokens: Tokens(4) };

    fn timing(forward_us: u32) -> StepTiming {
        StepTiming { inbox_us: 0, forward_us, sampling_us: 0 }
    }

    /// One step of `forward_us` and a hop of `hop_us` has been seen, from moment 0 on.
    fn taught(forward_us: u32, hop_us: u64) -> (Pacing, Micros) {
        let mut pacing = Pacing::default();
        pacing.sent(DECODE, Micros(0));
        let now = Micros(u64::from(forward_us) + hop_us);
        pacing.landed(timing(forward_us), true, now);
        (pacing, now)
    }

    #[test]
    fn before_there_is_a_prediction_the_next_step_goes_at_once() {
        let mut pacing = Pacing::default();
        assert_eq!(pacing.due(), None);
        pacing.sent(DECODE, Micros(5));
        assert_eq!(pacing.due(), None);
    }

    #[test]
    fn with_nothing_under_way_the_next_step_goes_at_once() {
        assert_eq!(taught(30_000, 300).0.due(), None);
    }

    #[test]
    fn the_next_step_goes_two_milliseconds_before_the_predicted_end() {
        let (mut pacing, now) = taught(30_000, 300);
        pacing.sent(DECODE, now);
        assert_eq!(pacing.due(), Some(now + Micros(28_000)));
    }

    #[test]
    fn over_a_slow_link_it_goes_three_hops_before() {
        let (mut pacing, now) = taught(30_000, 2_000);
        pacing.sent(DECODE, now);
        assert_eq!(pacing.due(), Some(now + Micros(24_000)));
    }

    #[test]
    fn a_step_shorter_than_the_lead_has_its_successor_sent_in_the_past() {
        let (mut pacing, now) = taught(1_000, 300);
        pacing.sent(DECODE, now);
        assert!(pacing.due().is_some_and(|due| due <= now));
    }

    #[test]
    fn a_queued_step_begins_when_the_one_before_it_ends() {
        let (mut pacing, now) = taught(30_000, 300);
        pacing.sent(DECODE, now);
        let queued = now + Micros(28_000);
        pacing.sent(DECODE, queued);
        let landed = now + Micros(30_300);
        let spent = pacing.landed(timing(30_000), true, landed);
        assert_eq!(spent.busy, Micros(30_300));
        assert_eq!(pacing.due(), Some(landed - Micros(300) + Micros(28_000)));
    }

    #[test]
    fn the_overhead_of_a_step_is_the_way_there_and_back_and_the_pause_before_it() {
        let (mut pacing, now) = taught(30_000, 300);
        pacing.sent(DECODE, now + Micros(50));
        let spent = pacing.landed(timing(1_000), true, now + Micros(1_250));
        assert_eq!(spent, Spent { busy: Micros(1_200), overhead: Micros(250) });
    }

    #[test]
    fn a_step_that_was_queued_behind_another_has_no_overhead_but_what_the_shard_lost() {
        let (mut pacing, now) = taught(1_000, 300);
        pacing.sent(DECODE, now);
        pacing.sent(DECODE, now);
        pacing.landed(timing(1_000), true, now + Micros(1_300));
        let spent = pacing.landed(timing(1_000), true, now + Micros(2_310));
        assert_eq!(spent.overhead, Micros(10));
    }

    #[test]
    fn a_pause_without_work_is_no_overhead() {
        let (mut pacing, now) = taught(30_000, 300);
        pacing.rest();
        pacing.sent(DECODE, now + Micros(5_000_000));
        let spent = pacing.landed(timing(1_000), true, now + Micros(5_001_200));
        assert_eq!(spent.overhead, Micros(200));
    }

    #[test]
    fn waiting_in_the_inbox_is_no_part_of_the_hop() {
        let mut pacing = Pacing::default();
        pacing.sent(DECODE, Micros(0));
        pacing.landed(StepTiming { inbox_us: 9_000, forward_us: 700, sampling_us: 100 }, true, Micros(10_000));
        assert_eq!(pacing.hop(), Some(Micros(200)));
    }

    /// A second step lands that was queued behind the first and waited `inbox_us` for its turn.
    fn queue_one(pacing: &mut Pacing, mut now: Micros, inbox_us: u32) -> Micros {
        pacing.sent(DECODE, now);
        pacing.sent(DECODE, now + Micros(28_000));
        now += Micros(30_300);
        pacing.landed(StepTiming { inbox_us: 9_000, ..timing(30_000) }, true, now);
        now += Micros(30_000);
        pacing.landed(StepTiming { inbox_us, ..timing(30_000) }, true, now);
        now
    }

    #[test]
    fn after_a_step_that_came_nearly_too_late_the_next_goes_earlier() {
        let (mut pacing, now) = taught(30_000, 300);
        let now = queue_one(&mut pacing, now, 299);
        let now = queue_one(&mut pacing, now, 0);
        pacing.sent(DECODE, now);
        assert_eq!(pacing.growth, Micros(1_000));
        assert_eq!(pacing.due(), Some(now + Micros(30_000) - (MIN_LEAD + Micros(1_000))));
    }

    #[test]
    fn steps_that_come_in_time_let_the_lead_shrink_again() {
        let (mut pacing, mut now) = taught(30_000, 300);
        now = queue_one(&mut pacing, now, 0);
        for _ in 0..200 {
            now = queue_one(&mut pacing, now, 300);
        }
        assert_eq!(pacing.growth, Micros::ZERO);
    }

    #[test]
    fn the_lead_does_not_grow_for_ever_nor_for_steps_that_found_the_shard_idle() {
        let (mut pacing, mut now) = taught(30_000, 300);
        for _ in 0..10 {
            pacing.sent(DECODE, now);
            now += Micros(30_300);
            pacing.landed(timing(30_000), true, now);
        }
        assert_eq!(pacing.growth, Micros::ZERO);
        for _ in 0..100 {
            now = queue_one(&mut pacing, now, 0);
        }
        assert_eq!(pacing.growth, MOST_GROWTH);
    }

    #[test]
    fn prefills_do_not_predict_decodes() {
        let (mut pacing, now) = taught(30_000, 300);
        pacing.sent(Shape { kind: Kind::Prefill, ..DECODE }, now);
        assert_eq!(pacing.due(), None);
    }

    #[test]
    fn a_size_not_seen_yet_is_predicted_by_the_next_smaller_one() {
        let (mut pacing, now) = taught(30_000, 300);
        pacing.sent(Shape { tokens: Tokens(200), ..DECODE }, now);
        assert_eq!(pacing.due(), Some(now + Micros(28_000)));
        pacing.session_lost();
        pacing.sent(Shape { tokens: Tokens(1), ..DECODE }, now);
        assert_eq!(pacing.due(), None);
    }

    #[test]
    fn estimates_fall_fast_and_rise_slowly() {
        let mut times = StepTimes::default();
        times.learn(Tokens(4), Micros(8_000));
        times.learn(Tokens(4), Micros(16_000));
        assert_eq!(times.predict(Tokens(4)), Some(Micros(9_000)));
        times.learn(Tokens(4), Micros(1_000));
        assert_eq!(times.predict(Tokens(4)), Some(Micros(5_000)));
    }

    #[test]
    fn a_failed_step_teaches_nothing() {
        let mut pacing = Pacing::default();
        pacing.sent(DECODE, Micros(0));
        pacing.landed(timing(0), false, Micros(50));
        assert_eq!(pacing.hop(), None);
        assert_eq!(pacing.decode.predict(Tokens(4)), None);
    }
}
