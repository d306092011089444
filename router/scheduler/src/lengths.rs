//! How long answers turn out to be: learned from those that ended, asked for those that run.
//!
//! A client that allows 1,024 tokens and stops after 20 must not be counted as 1,024. Lengths are kept per tenant and
//! magnitude of `max_new_tokens`, since both say much, and as shares of `max_new_tokens`, since there are clients whose
//! answers always go to their limit: the first 64 tenants have histograms of their own, others share one. An estimate is
//! conditioned on what is generated already: who has passed 200 tokens is not expected to end at 20.
//!
//! Short answers end first, so what has ended says too little at any moment. Those that run count too: an answer that has
//! passed a length says that it is longer (the product-limit estimate of Kaplan and Meier).
//!
//! Before there are enough samples the rule is SGLang's: a share of what is still allowed, 0.7 at first, falling to 0.1
//! as steps go by, and 0.7 again when a request had to be preempted. Integers only.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::request::Tenant;
use crate::units::Tokens;

/// A whole `max_new_tokens`; lengths are counted in parts of it.
const WHOLE: u64 = 1 << 20;
/// Buckets of a histogram: four to a doubling, up to `WHOLE` and a little more.
const BUCKETS: usize = 84;
/// Tenants with histograms of their own.
const TENANTS: usize = 64;
/// Certainty, in the fixed-point numbers of probabilities.
const SURE: u64 = 1 << 20;
/// Ended answers that make a histogram worth asking.
const ENOUGH: u32 = 16;
/// At this many samples all counts are halved, so that a change of habits is learned.
const FULL: u32 = 512;

const FIRST_SHARE_PERMILLE: u32 = 700;
const LAST_SHARE_PERMILLE: u32 = 100;

/// What a preemption adds to `caution`, at most up to the next; a step takes one away.
const CAUTION_PERMILLE: u32 = 80;
const MOST_CAUTION_PERMILLE: u32 = 1000;

/// Who asks, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Habit {
    /// `None`: all tenants together.
    tenant: Option<Tenant>,
    /// Magnitude of `max_new_tokens`; `None`: any. Long answers end late, so theirs is the last to be known.
    allowed: Option<u8>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lengths {
    habits: BTreeMap<Habit, Histogram>,
    /// Tenants that have histograms.
    tenants: Vec<Tenant>,
    share_permille: u32,
    /// Added to expectations of what is learned, in thousandths: the mean is right half the time, and a preemption says
    /// that this was not enough.
    caution_permille: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Histogram {
    /// Answers that ended in each bucket, and that went on beyond it.
    buckets: Vec<(u32, u32)>,
    ended: u32,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { habits: BTreeMap::new(), tenants: Vec::new(), share_permille: FIRST_SHARE_PERMILLE, caution_permille: 0 }
    }
}

impl Lengths {
    /// An answer came to its own end, or to its full length, after `length` tokens.
    pub fn learn(&mut self, tenant: Tenant, max_new: Tokens, length: Tokens) {
        if !self.tenants.contains(&tenant) && self.tenants.len() < TENANTS {
            self.tenants.push(tenant);
        }
        let own = Some(tenant).filter(|tenant| self.tenants.contains(tenant));
        let bucket = bucket(part(length, max_new));
        for habit in habits(own, max_new) {
            self.habits.entry(habit).or_default().end(bucket);
        }
    }

    /// An answer has `length` tokens and goes on: it is beyond the buckets that begin with `from`. Returns the bucket that
    /// it is in, from which to go on the next time.
    pub fn pass(&mut self, tenant: Tenant, max_new: Tokens, length: Tokens, from: u8) -> u8 {
        let here = bucket(part(length, max_new));
        if here > from as usize {
            let own = Some(tenant).filter(|tenant| self.tenants.contains(tenant));
            for habit in habits(own, max_new) {
                self.habits.entry(habit).or_default().pass(from as usize..here);
            }
        }
        here as u8
    }

    /// Tokens that an answer with `generated` tokens is still expected to get; at least one, at most what is allowed.
    pub fn expect(&self, tenant: Tenant, max_new: Tokens, generated: Tokens) -> Tokens {
        let left = max_new.saturating_sub(generated).max(Tokens(1));
        let done = part(generated, max_new);
        let known = habits(Some(tenant), max_new).find_map(|habit| self.habits.get(&habit)?.expect(done));
        let cautious = |part: u64| part * u64::from(1000 + self.caution_permille) / 1000;
        let learned = known.map(|part| Tokens((cautious(part) * u64::from(max_new.0)).div_ceil(WHOLE) as u32));
        let by_rule = || Tokens((u64::from(left.0) * u64::from(self.share_permille)).div_ceil(1000) as u32);
        learned.unwrap_or_else(by_rule).max(Tokens(1)).min(left)
    }

    /// A step went by.
    pub fn step(&mut self) {
        self.share_permille = (self.share_permille - 1).max(LAST_SHARE_PERMILLE);
        self.caution_permille = self.caution_permille.saturating_sub(1);
    }

    /// Too much was admitted.
    pub fn preempted(&mut self) {
        self.share_permille = FIRST_SHARE_PERMILLE;
        self.caution_permille = (self.caution_permille + CAUTION_PERMILLE).min(MOST_CAUTION_PERMILLE);
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![(0, 0); BUCKETS], ended: 0 }
    }
}

impl Histogram {
    fn end(&mut self, bucket: usize) {
        if self.ended >= FULL {
            self.buckets.iter_mut().for_each(|(ended, passed)| (*ended, *passed) = (*ended / 2, *passed / 2));
            self.ended = self.buckets.iter().map(|(ended, _)| ended).sum();
        }
        self.buckets[bucket].0 += 1;
        self.ended += 1;
    }

    fn pass(&mut self, buckets: Range<usize>) {
        self.buckets[buckets].iter_mut().for_each(|(_, passed)| *passed += 1);
    }

    /// What an answer of this length is expected to get still, in parts of `WHOLE`; `None`: too little is known.
    fn expect(&self, done: u64) -> Option<u64> {
        if self.ended < ENOUGH {
            return None;
        }
        let (mut left, mut survives) = (0, SURE);
        for (bucket, &(ended, passed)) in self.buckets.iter().enumerate().skip(bucket(done)) {
            let (from, to) = (begin(bucket).max(done), begin(bucket + 1).min(WHOLE));
            if from >= to {
                continue; // no whole number lies in it, or it is beyond the limit
            }
            // Nobody came this far: whoever does is expected to go on.
            let ends = (survives * u64::from(ended)).checked_div(u64::from(ended) + u64::from(passed)).unwrap_or(0);
            // Those that end in a bucket do so in its middle on average.
            left += (to - from) * (2 * survives - ends) / 2;
            survives -= ends;
        }
        Some(left.div_ceil(SURE))
    }
}

/// What a request counts for, and is expected to be like: the first of these that is known.
fn habits(tenant: Option<Tenant>, max_new: Tokens) -> impl Iterator<Item = Habit> {
    let allowed = Some(magnitude(max_new));
    let own = tenant.into_iter().flat_map(move |tenant| {
        let tenant = Some(tenant);
        [Habit { tenant, allowed }, Habit { tenant, allowed: None }]
    });
    own.chain([Habit { tenant: None, allowed }, Habit { tenant: None, allowed: None }])
}

/// The power of two below.
fn magnitude(tokens: Tokens) -> u8 {
    tokens.0.max(1).ilog2() as u8
}

/// A length in parts of `max_new`, rounded up.
fn part(length: Tokens, max_new: Tokens) -> u64 {
    (u64::from(length.0) * WHOLE).div_ceil(u64::from(max_new.0.max(1)))
}

/// The least length of a bucket.
fn begin(bucket: usize) -> u64 {
    let (power, quarter) = (bucket as u32 / 4, bucket as u64 % 4);
    ((4 + quarter) << power).div_ceil(4)
}

/// Four buckets to a doubling: 1, 2, 3, 4, 5, 6, 7, 8–9, 10–11, …
fn bucket(part: u64) -> usize {
    let part = part.max(1);
    let power = part.ilog2();
    let quarter = if power >= 2 { (part >> (power - 2)) & 3 } else { (part << (2 - power)) & 3 };
    (power as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: Tenant = Tenant(3);

    fn taught(max_new: u32, lengths: impl IntoIterator<Item = u32>) -> Lengths {
        let mut all = Lengths::default();
        for length in lengths {
            all.pass(TENANT, Tokens(max_new), Tokens(length), 0);
            all.learn(TENANT, Tokens(max_new), Tokens(length));
        }
        all
    }

    #[test]
    fn buckets_grow_with_length_and_have_four_to_a_doubling() {
        assert!((1..100_000).all(|part| bucket(part) <= bucket(part + 1)));
        assert!((4..20_u32).all(|power| bucket(1 << (power + 1)) == bucket(1 << power) + 4));
        assert!(bucket(WHOLE) < BUCKETS);
    }

    #[test]
    fn a_bucket_begins_where_lengths_fall_into_it() {
        for length in 1..100_000 {
            let bucket = bucket(length);
            assert!(begin(bucket) <= length && length < begin(bucket + 1), "{length} in bucket {bucket}");
        }
    }

    #[test]
    fn answers_that_go_to_their_limit_are_expected_to() {
        let mut lengths = Lengths::default();
        for max_new in 600..700 {
            lengths.pass(TENANT, Tokens(max_new), Tokens(max_new), 0);
            lengths.learn(TENANT, Tokens(max_new), Tokens(max_new));
        }
        for max_new in [520, 777, 1000] {
            assert_eq!(lengths.expect(TENANT, Tokens(max_new), Tokens(20)), Tokens(max_new - 20));
        }
    }

    #[test]
    fn answers_that_still_run_say_that_they_are_longer_than_those_that_ended() {
        let mut lengths = taught(1024, [20; 20]);
        let before = lengths.expect(TENANT, Tokens(1024), Tokens(0)).0;
        for _ in 0..20 {
            lengths.pass(TENANT, Tokens(1024), Tokens(500), 0);
        }
        let after = lengths.expect(TENANT, Tokens(1024), Tokens(0)).0;
        assert!(before < 24 && after > 250, "{before}, then {after}");
    }

    #[test]
    fn before_there_are_samples_the_share_falls_with_steps_and_a_preemption_sets_it_back() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.expect(TENANT, Tokens(1000), Tokens(0)), Tokens(700));
        (0..10_000).for_each(|_| lengths.step());
        assert_eq!(lengths.expect(TENANT, Tokens(1000), Tokens(0)), Tokens(100));
        lengths.preempted();
        assert_eq!(lengths.expect(TENANT, Tokens(1000), Tokens(500)), Tokens(350));
    }

    #[test]
    fn what_ended_says_what_to_expect() {
        let lengths = taught(1024, [20; 40]);
        let expected = lengths.expect(TENANT, Tokens(1024), Tokens(0)).0;
        assert!((20..=23).contains(&expected), "{expected}");
        assert!(lengths.expect(TENANT, Tokens(1024), Tokens(15)).0 < 9);
    }

    #[test]
    fn an_answer_that_has_passed_the_short_ones_is_expected_to_be_long() {
        let lengths = taught(1024, [20; 40].into_iter().chain([800; 10]));
        let expected = lengths.expect(TENANT, Tokens(1024), Tokens(100)).0;
        assert!((700..=900).contains(&expected), "{expected}");
    }

    #[test]
    fn an_answer_longer_than_any_before_is_expected_to_go_to_its_limit() {
        let lengths = taught(1024, [20; 40]);
        assert_eq!(lengths.expect(TENANT, Tokens(1024), Tokens(824)), Tokens(200));
    }

    #[test]
    fn a_tenant_without_samples_is_expected_to_be_like_the_others() {
        let lengths = taught(1024, [20; 40]);
        assert!(lengths.expect(Tenant(9), Tokens(1024), Tokens(0)).0 < 24);
        assert_eq!(lengths.expect(Tenant(9), Tokens(64), Tokens(0)), Tokens(2), "the same share of another magnitude");
    }

    #[test]
    fn never_more_than_is_allowed_and_never_nothing() {
        let lengths = taught(16, [20; 40]);
        assert_eq!(lengths.expect(TENANT, Tokens(16), Tokens(10)), Tokens(6));
        assert_eq!(lengths.expect(TENANT, Tokens(16), Tokens(16)), Tokens(1));
    }

    #[test]
    fn habits_change() {
        let lengths = taught(1024, [500; 600].into_iter().chain([20; 3000]));
        assert!(lengths.expect(TENANT, Tokens(1024), Tokens(0)).0 < 40);
    }

    #[test]
    fn the_memory_for_tenants_is_bounded() {
        let mut lengths = Lengths::default();
        (0..10_000).for_each(|tenant| lengths.learn(Tenant(tenant), Tokens(64), Tokens(8)));
        assert!(lengths.habits.len() <= 2 * (TENANTS + 1));
    }
}
