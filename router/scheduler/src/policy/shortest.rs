//! The shortest prompt first: mean latency falls, and ageing keeps long prompts from waiting for ever.
//!
//! Who has the fewest uncached tokens goes first, but every token of prompt work done since a request's arrival brings
//! it forward:
//!
//! ```text
//! score = (uncached + C) / (C + A · prompt work since arrival)      lowest first
//! ```
//!
//! Bound: a request that arrives with nothing done for it has a score of at least 1, whatever its length. So once
//! `A · work ≥ uncached` has been done since a request's arrival, no newcomer goes before it. Compared as integers.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::Turn;
use crate::queue::Waiting;
use crate::sequences::Handle;
use crate::units::{Micros, Tokens};

/// Keeps very short prompts from being told apart by a few tokens.
const C: u64 = 64;
/// A request of n uncached tokens waits for at most 20 n tokens of others' later prompts: `A` = 1/20.
const WORK_PER_TOKEN: u64 = 20;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Shortest {
    waiting: BTreeMap<Turn, Need>,
    /// Prompt tokens computed since the start.
    work: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Need {
    uncached: Tokens,
    /// `work` at arrival.
    since: u64,
}

impl Shortest {
    pub fn push(&mut self, handle: Handle, waiting: &Waiting) {
        self.waiting.insert(Turn::of(handle, waiting), Need { uncached: waiting.uncached, since: self.work });
    }

    pub fn remove(&mut self, handle: Handle, waiting: &Waiting) {
        self.waiting.remove(&Turn::of(handle, waiting));
    }

    pub fn worked(&mut self, tokens: u64) {
        self.work += tokens;
    }

    /// In time proportional to those that wait: scores change against each other with every step.
    pub fn order(&self, _now: Micros, limit: usize, out: &mut Vec<Handle>) {
        let mut all: Vec<(&Turn, &Need)> = self.waiting.iter().collect();
        let by_score = |a: &(&Turn, &Need), b: &(&Turn, &Need)| {
            let preempted_first = b.0.was_preempted().cmp(&a.0.was_preempted());
            preempted_first.then_with(|| self.compare(a.1, b.1)).then_with(|| a.0.cmp(b.0))
        };
        if all.len() > limit {
            all.select_nth_unstable_by(limit, by_score);
            all.truncate(limit);
        }
        all.sort_unstable_by(by_score);
        out.extend(all.into_iter().map(|(turn, _)| turn.handle));
    }

    fn compare(&self, a: &Need, b: &Need) -> Ordering {
        let parts = |need: &Need| {
            let length = u128::from(u64::from(need.uncached.0) + C);
            (length, u128::from(C * WORK_PER_TOKEN + (self.work - need.since)))
        };
        let ((length_a, age_a), (length_b, age_b)) = (parts(a), parts(b));
        (length_a * age_b).cmp(&(length_b * age_a))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::{handles, waiting};

    fn order(shortest: &Shortest) -> Vec<u64> {
        let mut out = Vec::new();
        shortest.order(Micros(0), 16, &mut out);
        out.into_iter().map(|handle| handle.request.0).collect()
    }

    fn of(uncached: u32) -> Waiting {
        Waiting { uncached: Tokens(uncached), ..waiting() }
    }

    #[test]
    fn the_fewest_uncached_tokens_go_first_and_equals_by_arrival() {
        let mut shortest = Shortest::default();
        for (&handle, uncached) in handles(4).iter().zip([500, 50, 500, 50]) {
            shortest.push(handle, &of(uncached));
        }
        assert_eq!(order(&shortest), [2, 4, 1, 3]);
    }

    #[test]
    fn work_done_since_its_arrival_brings_a_long_prompt_forward() {
        let mut shortest = Shortest::default();
        let handles = handles(3);
        shortest.push(handles[0], &of(500));
        shortest.push(handles[1], &of(50));
        assert_eq!(order(&shortest), [2, 1]);
        shortest.worked(20 * 500);
        shortest.push(handles[2], &of(1));
        assert_eq!(order(&shortest)[1], 1, "no newcomer goes before it any more");
    }

    #[test]
    fn one_that_was_preempted_goes_before_all_that_never_ran() {
        let mut shortest = Shortest::default();
        let handles = handles(2);
        shortest.push(handles[0], &of(1));
        shortest.push(handles[1], &Waiting { preempted: true, ..of(900) });
        assert_eq!(order(&shortest), [2, 1]);
    }

    #[test]
    fn of_many_only_the_first_few_are_named() {
        let mut shortest = Shortest::default();
        for (place, &handle) in handles(100).iter().enumerate() {
            shortest.push(handle, &of(1000 - 10 * place as u32));
        }
        let mut out = Vec::new();
        shortest.order(Micros(0), 3, &mut out);
        assert_eq!(out.into_iter().map(|handle| handle.request.0).collect::<Vec<_>>(), [100, 99, 98]);
    }
}
