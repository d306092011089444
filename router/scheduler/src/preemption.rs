//! When blocks run out: who gives theirs back, and waits to be computed again.

use crate::event::Event;
use crate::scheduler::Scheduler;
use crate::sequences::{Handle, Sequences};
use crate::units::{Blocks, RequestId, Tokens};

/// A request that was a victim this often is spared while there are others that were not.
const SPARED_AFTER: u32 = 2;

/// Whose blocks to take: of those that were a victim fewer than twice (of all, where there are none) the one that
/// arrived last. Never the only one that runs: it always fits alone.
///
/// Bounded: the oldest unfinished request is a victim at most twice, so it ends, and then the next one is the oldest.
fn choose_victim(running: &[Handle], sequences: &Sequences) -> Option<Handle> {
    let [_, _, ..] = running else { return None };
    let spared = |handle: &Handle| sequences[*handle].preemptions >= SPARED_AFTER;
    running.iter().rfind(|handle| !spared(handle)).or(running.last()).copied()
}

impl Scheduler {
    /// Preempts until this step's growth fits in what is free or will be when the steps in flight land.
    ///
    /// Blocks that are leaving are waited for, not preempted for: the rows that need them sit out one plan.
    pub(crate) fn make_room(&mut self) {
        while self.blocks_needed() > self.pool.free() + self.pool.leaving() {
            let Some(victim) = choose_victim(&self.running, &self.sequences) else { return };
            self.sequences[victim].preemptions += 1;
            self.preempt(victim);
        }
    }

    /// One block for each decode row at the end of its table.
    ///
    /// Prefilling rows need not be counted. Decode rows may take the blocks they were promised, and then they wait, but
    /// never for each other: all that prefill at a time were admitted into one pool, so once those who decode have
    /// ended, each finds its blocks.
    fn blocks_needed(&self) -> Blocks {
        let needs = |handle: &&Handle| {
            let sequence = &self.sequences[**handle];
            !sequence.is_prefilling() && sequence.needs_block(self.config.block_size)
        };
        Blocks(self.running.iter().filter(needs).count() as u32)
    }

    /// For tests: every request loses its row once, wherever its seed says.
    pub(crate) fn preempt_once(&mut self) {
        if self.config.preempt_once_seed.is_none() {
            return;
        }
        let due = |sequences: &Sequences, handle: Handle| {
            sequences[handle].preempt_at.is_some_and(|at| sequences[handle].sampled() >= at)
        };
        let victims: Vec<Handle> =
            self.running.iter().copied().filter(|&handle| due(&self.sequences, handle)).collect();
        for victim in victims {
            self.sequences[victim].preempt_at = None;
            self.preempt(victim);
        }
    }

    /// Takes row and blocks. A sample in flight is part of the answer and is kept when it lands.
    fn preempt(&mut self, victim: Handle) {
        self.vacate(victim);
        let sequence = &mut self.sequences[victim];
        sequence.wait_again();
        self.queue.push(victim, sequence.known());
        self.counters.preemptions += 1;
        self.events.push_back(Event::Preempted { request: victim.request });
    }
}

/// After how many tokens the request loses its row, in `1..min(max_new, 32)`; `None` if it has no second token.
pub(crate) fn preempt_at(seed: u64, request: RequestId, max_new: Tokens) -> Option<Tokens> {
    let choices = max_new.0.min(32).checked_sub(1).filter(|&choices| choices > 0)?;
    Some(Tokens(1 + (mix(seed, request.0) % u64::from(choices)) as u32))
}

/// A fixed integer hash (the finaliser of SplitMix64).
fn mix(seed: u64, value: u64) -> u64 {
    let mut x = seed.wrapping_add(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;
    use crate::sequence::Sequence;

    fn victim_of(preemptions: &[u32]) -> Option<usize> {
        let mut sequences = Sequences::default();
        let request = Request { prompt: vec![1], max_new_tokens: Tokens(1), ignore_eos: false };
        let running: Vec<Handle> = preemptions
            .iter()
            .map(|&preemptions| {
                let handle = sequences.insert(Sequence::new(request.clone(), None));
                sequences[handle].preemptions = preemptions;
                handle
            })
            .collect();
        let victim = choose_victim(&running, &sequences)?;
        running.iter().position(|&handle| handle == victim)
    }

    #[test]
    fn the_victim_is_the_one_that_arrived_last() {
        assert_eq!(victim_of(&[0, 1, 1]), Some(2));
    }

    #[test]
    fn the_only_running_request_is_never_a_victim() {
        assert_eq!(victim_of(&[0]), None);
        assert_eq!(victim_of(&[]), None);
    }

    #[test]
    fn one_that_was_a_victim_twice_is_spared_while_others_were_not() {
        assert_eq!(victim_of(&[0, 1, 2]), Some(1));
        assert_eq!(victim_of(&[0, 2, 3]), Some(0));
    }

    #[test]
    fn where_all_were_victims_twice_the_last_to_arrive_is_one_again() {
        assert_eq!(victim_of(&[2, 5, 2]), Some(2));
    }

    #[test]
    fn the_seeded_preemption_falls_after_the_first_and_before_the_last_token() {
        for max_new in 2..80 {
            for request in 0..200 {
                let at = preempt_at(7, RequestId(request), Tokens(max_new)).expect("two tokens or more");
                assert!((1..max_new.min(32)).contains(&at.0), "{at} of {max_new}");
            }
        }
        assert_eq!(preempt_at(7, RequestId(1), Tokens(1)), None);
    }

    #[test]
    fn the_seeded_preemption_falls_everywhere_it_may() {
        let drawn: std::collections::BTreeSet<u32> =
            (0..1000).filter_map(|request| preempt_at(7, RequestId(request), Tokens(100))).map(|at| at.0).collect();
        assert_eq!(drawn, (1..32).collect());
    }
}
