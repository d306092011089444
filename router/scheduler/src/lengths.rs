//! How long answers turn out to be: learned from those that ended and those that run.
//!
//! A client that allows 1,024 tokens and stops after 20 must not be counted as 1,024. Lengths are kept per tenant and
//! magnitude of `max_new_tokens`, since both say much, and as shares of `max_new_tokens`, since there are clients whose
//! answers always go to their limit: the first 64 tenants have histograms of their own, others share one. What is expected
//! is conditioned on what is generated already: who has passed 200 tokens is not expected to end at 20.
//!
//! Before there are enough samples the rule is SGLang's: a share of what is still allowed, 0.7 at first, falling to 0.1
//! as steps go by, and 0.7 again when a request had to be preempted. Integers only.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::request::Tenant;
use crate::survival::{Histogram, Outlook, bucket_of, left};
use crate::units::Tokens;

/// Tenants with histograms of their own.
const TENANTS: usize = 64;

const FIRST_SHARE_PERMILLE: u32 = 700;
const LAST_SHARE_PERMILLE: u32 = 100;
const SHARE_STEP_PERMILLE: u32 = 4;

/// Standard deviations that admission leaves free, in thousandths, as long as nobody is preempted.
const SPREAD_PERMILLE: u32 = 1600;
/// What a preemption adds to it, at most up to the next; a step takes one away.
const CAUTION_PERMILLE: u32 = 70;
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
    /// What a preemption says of the spread: it was not enough.
    caution_permille: u32,
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
        let bucket = bucket_of(length, max_new);
        for habit in habits(own, max_new) {
            self.habits.entry(habit).or_default().end(bucket);
        }
    }

    /// An answer has `length` tokens and goes on: it is beyond the buckets that begin with `from`. Returns the bucket that
    /// it is in, from which to go on the next time.
    pub fn pass(&mut self, tenant: Tenant, max_new: Tokens, length: Tokens, from: u8) -> u8 {
        let here = bucket_of(length, max_new);
        if here > from {
            let own = Some(tenant).filter(|tenant| self.tenants.contains(tenant));
            for habit in habits(own, max_new) {
                self.habits.entry(habit).or_default().pass(from..here);
            }
        }
        here
    }

    /// When an answer with `generated` tokens is expected to end.
    pub fn outlook(&mut self, tenant: Tenant, max_new: Tokens, generated: Tokens) -> Outlook<'_> {
        let known = |habit: &Habit| self.habits.get(habit).is_some_and(Histogram::is_worth_asking);
        let habit = habits(Some(tenant), max_new).find(known);
        match habit.and_then(|habit| self.habits.get_mut(&habit)) {
            Some(histogram) => histogram.outlook(max_new, generated),
            None => {
                let left = u64::from(left(max_new, generated).0) * u64::from(self.share_permille);
                Outlook::certain(Tokens(left.div_ceil(1000) as u32))
            }
        }
    }

    /// How many more tokens an answer with `generated` of them is expected to get, at least one. Where nothing is known it
    /// is few: nobody is refused on a guess.
    pub fn expected(&mut self, tenant: Tenant, max_new: Tokens, generated: Tokens) -> Tokens {
        let known = |habit: &Habit| self.habits.get(habit).is_some_and(Histogram::says_something);
        let habit = habits(Some(tenant), max_new).find(known);
        let left = left(max_new, generated);
        match habit.and_then(|habit| self.habits.get_mut(&habit)) {
            Some(histogram) => histogram.expected(max_new, generated).clamp(Tokens(1), left),
            None => Tokens((u64::from(left.0) * u64::from(LAST_SHARE_PERMILLE)).div_ceil(1000) as u32),
        }
    }

    /// Standard deviations of what all rows will hold that admission leaves free, in thousandths.
    pub fn spread_permille(&self) -> u32 {
        SPREAD_PERMILLE + self.caution_permille
    }

    /// A step went by.
    pub fn step(&mut self) {
        self.share_permille = (self.share_permille - SHARE_STEP_PERMILLE).max(LAST_SHARE_PERMILLE);
        self.caution_permille = self.caution_permille.saturating_sub(1);
    }

    /// Too much was admitted.
    pub fn preempted(&mut self) {
        self.share_permille = FIRST_SHARE_PERMILLE;
        self.caution_permille = (self.caution_permille + CAUTION_PERMILLE).min(MOST_CAUTION_PERMILLE);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survival::{ENOUGH, SURE};

    const TENANT: Tenant = Tenant(3);

    fn taught(max_new: u32, lengths: impl IntoIterator<Item = u32>) -> Lengths {
        let mut all = Lengths::default();
        for length in lengths {
            all.pass(TENANT, Tokens(max_new), Tokens(length), 0);
            all.learn(TENANT, Tokens(max_new), Tokens(length));
        }
        all
    }

    /// The tokens for which an answer surely goes on, and those after which it has surely ended.
    fn range(lengths: &mut Lengths, tenant: Tenant, max_new: u32, generated: u32) -> (u32, u32) {
        let outlook = lengths.outlook(tenant, Tokens(max_new), Tokens(generated));
        let first = |done: fn(u64) -> bool| (1..=max_new).find(|&more| done(outlook.runs(Tokens(more)))).expect("ends");
        (first(|share| share < SURE) - 1, first(|share| share == 0))
    }

    #[test]
    fn answers_that_go_to_their_limit_are_expected_to() {
        let mut lengths = Lengths::default();
        for max_new in 600..700 {
            lengths.pass(TENANT, Tokens(max_new), Tokens(max_new), 0);
            lengths.learn(TENANT, Tokens(max_new), Tokens(max_new));
        }
        for max_new in [520, 777, 1000] {
            assert_eq!(range(&mut lengths, TENANT, max_new, 20), (max_new - 21, max_new - 20));
        }
    }

    #[test]
    fn before_there_are_samples_the_share_falls_with_steps_and_a_preemption_sets_it_back() {
        let mut lengths = taught(1000, [3; ENOUGH as usize - 1]);
        assert_eq!(range(&mut lengths, TENANT, 1000, 0), (699, 700));
        lengths.step();
        assert_eq!(range(&mut lengths, TENANT, 1000, 0), (695, 696));
        (0..10_000).for_each(|_| lengths.step());
        assert_eq!(range(&mut lengths, TENANT, 1000, 0), (99, 100));
        lengths.preempted();
        assert_eq!(range(&mut lengths, TENANT, 1000, 500), (349, 350));
        lengths.learn(TENANT, Tokens(1000), Tokens(3));
        assert!(range(&mut lengths, TENANT, 1000, 0).1 < 10);
    }

    #[test]
    fn a_preemption_asks_for_more_spread_for_a_while_and_only_so_much() {
        let mut lengths = Lengths::default();
        lengths.preempted();
        assert_eq!(lengths.spread_permille(), SPREAD_PERMILLE + CAUTION_PERMILLE);
        (0..CAUTION_PERMILLE + 5).for_each(|_| lengths.step());
        assert_eq!(lengths.spread_permille(), SPREAD_PERMILLE);
        (0..1000).for_each(|_| lengths.preempted());
        assert_eq!(lengths.spread_permille(), SPREAD_PERMILLE + MOST_CAUTION_PERMILLE);
    }

    #[test]
    fn a_tenant_without_samples_is_expected_to_be_like_the_others() {
        let mut lengths = taught(1024, [20; 60]);
        assert!(range(&mut lengths, Tenant(9), 1024, 0).1 <= 24);
        assert_eq!(range(&mut lengths, Tenant(9), 64, 0), (1, 2), "the same share of another magnitude");
    }

    #[test]
    fn a_tenant_with_samples_is_expected_to_be_like_itself() {
        let mut lengths = taught(1024, [20; 60]);
        (0..60).for_each(|_| lengths.learn(Tenant(9), Tokens(1024), Tokens(500)));
        assert!(range(&mut lengths, TENANT, 1024, 0).1 <= 24);
        assert!(range(&mut lengths, Tenant(9), 1024, 0).0 > 400);
    }

    #[test]
    fn few_tokens_are_expected_until_something_is_known() {
        let mut lengths = taught(1000, [400; 7]);
        assert_eq!(lengths.expected(TENANT, Tokens(1000), Tokens(0)), Tokens(100));
        assert_eq!(lengths.expected(TENANT, Tokens(1000), Tokens(995)), Tokens(1));
        lengths.learn(TENANT, Tokens(1000), Tokens(400));
        let expected = lengths.expected(TENANT, Tokens(1000), Tokens(0));
        assert!(expected.0.abs_diff(400) < 60, "{expected}");
    }

    #[test]
    fn never_more_than_is_allowed_and_never_nothing() {
        let mut lengths = taught(16, [20; 60]);
        assert_eq!(range(&mut lengths, TENANT, 16, 10).1, 6);
        assert_eq!(range(&mut lengths, TENANT, 16, 16).1, 1);
        assert_eq!(range(&mut Lengths::default(), TENANT, 16, 16).1, 1);
    }

    #[test]
    fn the_memory_for_tenants_is_bounded() {
        let mut lengths = Lengths::default();
        (0..10_000).for_each(|tenant| lengths.learn(Tenant(tenant), Tokens(64), Tokens(8)));
        assert!(lengths.habits.len() <= 2 * (TENANTS + 1));
    }
}
