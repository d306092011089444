//! How long answers turn out to be: learned from those that ended, asked for those that run.
//!
//! A client that allows 1,024 tokens and stops after 20 must not be counted as 1,024. Lengths are kept per tenant and
//! magnitude of `max_new_tokens`, since both say much: the first 64 tenants have histograms of their own, others share
//! one. An estimate is conditioned on what is generated already: who has passed 200 tokens is not expected to end at 20.
//!
//! Before there are enough samples the rule is SGLang's: a share of what is still allowed, 0.7 at first, falling to 0.1
//! as steps go by, and 0.7 again when a request had to be preempted. Integers only.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::request::Tenant;
use crate::units::Tokens;

/// Buckets of a histogram: four to a doubling, up to 2^20 tokens.
const BUCKETS: usize = 80;
/// Tenants with histograms of their own.
const TENANTS: usize = 64;
/// Samples that make a histogram worth asking.
const ENOUGH: u32 = 16;
/// At this many samples all counts are halved, so that a change of habits is learned.
const FULL: u32 = 512;

const FIRST_SHARE_PERMILLE: u32 = 700;
const LAST_SHARE_PERMILLE: u32 = 100;

/// Who asks, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Habit {
    /// `None`: all tenants together.
    tenant: Option<Tenant>,
    /// Magnitude of `max_new_tokens`.
    allowed: u8,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lengths {
    habits: BTreeMap<Habit, Histogram>,
    /// Tenants that have histograms.
    tenants: Vec<Tenant>,
    share_permille: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Histogram {
    counts: Vec<u32>,
    total: u32,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { habits: BTreeMap::new(), tenants: Vec::new(), share_permille: FIRST_SHARE_PERMILLE }
    }
}

impl Lengths {
    /// An answer came to its own end, or to its full length, after `length` tokens.
    pub fn learn(&mut self, tenant: Tenant, max_new: Tokens, length: Tokens) {
        if !self.tenants.contains(&tenant) && self.tenants.len() < TENANTS {
            self.tenants.push(tenant);
        }
        let allowed = magnitude(max_new);
        if self.tenants.contains(&tenant) {
            self.habits.entry(Habit { tenant: Some(tenant), allowed }).or_default().learn(length);
        }
        self.habits.entry(Habit { tenant: None, allowed }).or_default().learn(length);
    }

    /// Tokens that an answer with `generated` tokens is still expected to get; at least one, at most what is allowed.
    pub fn expect(&self, tenant: Tenant, max_new: Tokens, generated: Tokens) -> Tokens {
        let left = max_new.saturating_sub(generated).max(Tokens(1));
        let allowed = magnitude(max_new);
        let of = |tenant| self.habits.get(&Habit { tenant, allowed }).and_then(|habit| habit.expect(generated));
        let learned = of(Some(tenant)).or_else(|| of(None));
        let by_rule = || Tokens((u64::from(left.0) * u64::from(self.share_permille)).div_ceil(1000) as u32);
        learned.unwrap_or_else(by_rule).max(Tokens(1)).min(left)
    }

    /// A step went by.
    pub fn step(&mut self) {
        self.share_permille = (self.share_permille - 1).max(LAST_SHARE_PERMILLE);
    }

    /// Too much was admitted.
    pub fn preempted(&mut self) {
        self.share_permille = FIRST_SHARE_PERMILLE;
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    fn learn(&mut self, length: Tokens) {
        if self.total >= FULL {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        self.counts[bucket(length)] += 1;
        self.total += 1;
    }

    /// The mean of what longer answers had left at this length; `None`: too few were that long.
    fn expect(&self, generated: Tokens) -> Option<Tokens> {
        if self.total < ENOUGH {
            return None;
        }
        let (mut count, mut sum) = (0_u64, 0_u64);
        for (bucket, &n) in self.counts.iter().enumerate().skip(bucket(generated)) {
            let left = upper_bound(bucket).saturating_sub(generated);
            if left > Tokens::ZERO {
                count += u64::from(n);
                sum += u64::from(n) * u64::from(left.0);
            }
        }
        (count > 0).then(|| Tokens(sum.div_ceil(count) as u32))
    }
}

/// The power of two below.
fn magnitude(tokens: Tokens) -> u8 {
    tokens.0.max(1).ilog2() as u8
}

/// Lengths 1, 2, 3, 4, 5, 6, 7, 8–9, 10–11, …: four buckets to a doubling.
fn bucket(length: Tokens) -> usize {
    let length = length.0.max(1);
    let power = length.ilog2();
    let quarter = if power >= 2 { (length >> (power - 2)) & 3 } else { (length << (2 - power)) & 3 };
    ((power * 4 + quarter) as usize).min(BUCKETS - 1)
}

/// The largest length of a bucket.
fn upper_bound(bucket: usize) -> Tokens {
    let (power, quarter) = (bucket as u32 / 4, bucket as u32 % 4);
    Tokens(((5 + quarter) << power).div_ceil(4) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: Tenant = Tenant(3);

    fn taught(max_new: u32, lengths: impl IntoIterator<Item = u32>) -> Lengths {
        let mut all = Lengths::default();
        lengths.into_iter().for_each(|length| all.learn(TENANT, Tokens(max_new), Tokens(length)));
        all
    }

    #[test]
    fn every_length_is_within_a_quarter_of_its_buckets_bound() {
        for length in 1..100_000 {
            let bound = upper_bound(bucket(Tokens(length))).0;
            assert!(bound >= length && bound <= length + length / 4, "{length}: {bound}");
        }
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
    fn an_answer_longer_than_any_before_falls_back_to_the_rule() {
        let lengths = taught(1024, [20; 40]);
        assert_eq!(lengths.expect(TENANT, Tokens(1024), Tokens(824)), Tokens(140));
    }

    #[test]
    fn a_tenant_without_samples_is_expected_to_be_like_the_others() {
        let lengths = taught(1024, [20; 40]);
        assert!(lengths.expect(Tenant(9), Tokens(1024), Tokens(0)).0 < 24);
        assert_eq!(lengths.expect(Tenant(9), Tokens(64), Tokens(0)), Tokens(45), "another magnitude says nothing");
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
        assert!(lengths.habits.len() <= TENANTS + 1);
    }
}
