//! When blocks run out: who gives theirs back, and waits to be computed again.

use crate::config::PolicyKind;
use crate::event::Event;
use crate::policy::Runner;
use crate::request::Priority;
use crate::scheduler::Scheduler;
use crate::sequence::Sequence;
use crate::sequences::{Handle, Sequences};
use crate::units::{Blocks, Micros, RequestId, Tokens};

/// A request that was a victim this often is spared: for blocks, while there are others that were not; by policies, as
/// [`spared_for`] says.
pub(crate) const SPARED_AFTER: u32 = 2;

/// The most tokens by which a request must get on before a policy takes its row.
///
/// What it costs: where nothing of a long context stays cached, that context once more for each 256 tokens of the answer.
/// What it spares others: to wait as many steps as the context has tokens, or until the first answer ends.
pub(crate) const SPARED_FOR: Tokens = Tokens(256);

/// How many tokens a request must sample in the row that it just got, before a policy takes it for somebody else.
///
/// From its third loss on as many as were lost with the last row: so at most one token is computed again, or copied, for
/// each new one, up to [`SPARED_FOR`]. Where nothing was lost, what it computes in between stays. So every row brings a
/// request nearer to its end, and nobody waits for that end who has a right to the row.
pub(crate) fn spared_for(sequence: &Sequence, by_age: bool) -> Tokens {
    // The batch class has its share of admissions; what it fills beyond that, it always gives back.
    let often = sequence.preemptions >= SPARED_AFTER && sequence.priority != Priority::BATCH;
    match (by_age, often) {
        (true, _) => SPARED_FOR,
        (false, true) => sequence.lost().min(SPARED_FOR),
        (false, false) => Tokens::ZERO,
    }
}

/// What preempting a running request would bring and cost.
#[derive(Clone, Copy, Debug)]
struct Loss {
    handle: Handle,
    priority: Priority,
    /// Blocks that nobody else holds.
    reclaimable: Blocks,
    /// Tokens to compute again, if nothing of it stays cached.
    computed: Tokens,
    preemptions: u32,
}

impl Loss {
    /// Better: more blocks for each token that is computed again. A request that shares its beginning brings little; a
    /// long one costs much. Equals: the one that came last.
    fn is_better_than(&self, other: &Self) -> bool {
        let worth = |a: &Self, b: &Self| u64::from(a.reclaimable.0) * u64::from(b.computed.0.max(1));
        let (own, others) = (worth(self, other), worth(other, self));
        own > others || (own == others && self.handle > other.handle)
    }
}

/// Whose blocks to take: of the lowest band, the one whose loss is best. Never the only one that runs: it always fits
/// alone.
///
/// Bounded: one that was a victim twice is spared while others of its band were not, and where all were, the last to
/// arrive goes. So the oldest unfinished request of a band is a victim at most twice while its neighbours come and go:
/// it ends, and then the next one is the oldest. Nobody waits for being spared to end: somebody of the band always goes.
/// So here it lasts; if those who got on were victims again, they would take turns at computing their contexts again.
fn choose_victim(running: &[Loss]) -> Option<Handle> {
    let [_, _, ..] = running else { return None };
    let lowest = running.iter().map(|loss| loss.priority).min()?;
    let band = || running.iter().filter(|loss| loss.priority == lowest);
    let better = |best: &Loss, loss: &Loss| if loss.is_better_than(best) { *loss } else { *best };
    let fresh = band().filter(|loss| loss.preemptions < SPARED_AFTER).copied();
    let victim = fresh.reduce(|best, loss| better(&best, &loss));
    victim.map(|loss| loss.handle).or(band().map(|loss| loss.handle).max())
}

impl Scheduler {
    /// Preempts until this step's growth fits in what is available or will be when the steps in flight land.
    ///
    /// Blocks that are leaving are waited for, not preempted for: the rows that need them sit out one plan.
    pub(crate) fn make_room(&mut self) {
        self.short = false;
        while self.blocks_needed() > self.kv.available() + self.kv.leaving() {
            let losses: Vec<Loss> = self.running.iter().map(|&handle| self.loss(handle)).collect();
            let Some(victim) = choose_victim(&losses) else { return };
            self.short = true;
            self.lengths.preempted();
            self.victimise(victim);
        }
    }

    fn victimise(&mut self, victim: Handle) {
        let sequence = &mut self.sequences[victim];
        sequence.preemptions += 1;
        sequence.victim_at = self.counters.finished.total();
        self.preempt(victim);
    }

    fn loss(&self, handle: Handle) -> Loss {
        let sequence = &self.sequences[handle];
        Loss {
            handle,
            priority: sequence.priority,
            reclaimable: self.kv.private(&sequence.blocks),
            computed: sequence.computed,
            preemptions: sequence.preemptions,
        }
    }

    /// When who is next finds no row, or no blocks, the policy may give it somebody else's: one a plan, and until it has
    /// entered nobody else does, or the victims would take what they gave.
    pub(crate) fn give_way(&mut self, now: Micros) {
        self.room_for = None;
        if self.queue.is_empty() || !matches!(self.config.policy, PolicyKind::Priority | PolicyKind::Fair) {
            return;
        }
        let next = if self.rows.any_free() { self.queue.head(now) } else { self.queue.claimant(now) };
        let Some(head) = next else { return };
        let decoding = self.running.iter().filter(|&&handle| !self.sequences[handle].is_prefilling()).count();
        let may_enter = self.sequences[head].unknown == 0 && !self.would_thrash(head);
        let may_enter = may_enter && self.gate.is_open(self.queue.len(), self.running.len(), decoding);
        if !may_enter || (self.rows.any_free() && self.fits(head, Blocks::ZERO).is_some()) {
            return;
        }
        let runner = |&handle: &Handle| {
            let sequence = &self.sequences[handle];
            let spared = sequence.sampled() < sequence.spared_until;
            Runner { handle, tenant: sequence.tenant, priority: sequence.priority, spared }
        };
        let runners: Vec<Runner> = self.running.iter().map(runner).collect();
        if let Some(victim) = self.queue.displaces(head, &runners) {
            self.room_for = Some(head);
            self.victimise(victim);
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
        self.swap_out(victim);
        self.wait_again(victim);
        self.counters.preemptions += 1;
    }

    /// Gives back row and blocks, if the request has any, and puts it into the queue.
    pub(crate) fn wait_again(&mut self, handle: Handle) {
        self.vacate(handle);
        self.sequences[handle].wait_again();
        self.enqueue(handle);
        self.events.push_back(Event::Preempted { request: handle.request });
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
    use crate::host_pool::Swapped;
    use crate::queue::tests::handles;
    use crate::request::Request;

    /// Band, blocks it brings, tokens it costs, times it was a victim; the victim's place.
    fn victim_of(running: &[(i64, u32, u32, u32)]) -> Option<usize> {
        let handles = handles(running.len());
        let loss = |(&handle, &(band, blocks, tokens, preemptions)): (&Handle, &(i64, u32, u32, u32))| Loss {
            handle,
            priority: Priority::new(band).expect("a band"),
            reclaimable: Blocks(blocks),
            computed: Tokens(tokens),
            preemptions,
        };
        let losses: Vec<Loss> = handles.iter().zip(running).map(loss).collect();
        let victim = choose_victim(&losses)?;
        handles.iter().position(|&handle| handle == victim)
    }

    #[test]
    fn of_equals_the_victim_is_the_one_that_arrived_last() {
        assert_eq!(victim_of(&[(0, 4, 64, 0), (0, 4, 64, 0), (0, 4, 64, 1)]), Some(2));
    }

    #[test]
    fn the_only_running_request_is_never_a_victim() {
        assert_eq!(victim_of(&[(0, 4, 64, 0)]), None);
        assert_eq!(victim_of(&[]), None);
    }

    #[test]
    fn the_lowest_band_goes_first() {
        assert_eq!(victim_of(&[(-100, 1, 900, 1), (0, 9, 9, 0)]), Some(0));
    }

    #[test]
    fn more_blocks_for_fewer_tokens_are_better() {
        assert_eq!(victim_of(&[(0, 2, 17, 0), (0, 3, 33, 0)]), Some(0), "two blocks for 17 tokens");
        assert_eq!(victim_of(&[(0, 4, 64, 0), (0, 1, 64, 0)]), Some(0), "the second shares its beginning");
    }

    #[test]
    fn one_that_was_a_victim_twice_is_spared_while_others_of_its_band_were_not() {
        assert_eq!(victim_of(&[(0, 4, 64, 0), (0, 4, 64, 1), (0, 4, 64, 2)]), Some(1));
        assert_eq!(victim_of(&[(-1, 4, 64, 2), (0, 4, 64, 0)]), Some(0));
    }

    #[test]
    fn where_all_were_victims_twice_the_last_to_arrive_is_one_again() {
        assert_eq!(victim_of(&[(0, 4, 64, 2), (0, 4, 64, 5), (0, 1, 64, 2)]), Some(2));
    }

    /// A request that was a victim so often, and the last time of so many computed tokens.
    fn victim(priority: Priority, preemptions: u32, lost: u32) -> Sequence {
        let mut sequence = Sequence::new(Request::new(vec![1; 2000], Tokens(1)), Micros(0), None);
        (sequence.priority, sequence.preemptions, sequence.computed_before) = (priority, preemptions, Tokens(lost));
        sequence
    }

    #[test]
    fn from_the_third_loss_on_as_many_tokens_as_were_lost_but_256_at_most_come_before_the_next() {
        let spared = |preemptions, lost| spared_for(&victim(Priority::NORMAL, preemptions, lost), false).0;
        assert_eq!([spared(1, 100), spared(2, 100), spared(7, 2000), spared(2, 0)], [0, 100, 256, 0]);
    }

    #[test]
    fn what_went_to_host_memory_counts_as_lost_though_it_needs_not_be_computed() {
        let mut sequence = victim(Priority::NORMAL, 2, 0);
        sequence.swapped = Some(Swapped { blocks: Vec::new(), tokens: Tokens(90) });
        assert_eq!(spared_for(&sequence, false), Tokens(90));
    }

    #[test]
    fn one_that_entered_by_its_age_is_spared_whatever_it_lost_and_the_batch_class_only_then() {
        assert_eq!(spared_for(&victim(Priority::NORMAL, 2, 3), true), SPARED_FOR);
        assert_eq!(spared_for(&victim(Priority::BATCH, 0, 0), true), SPARED_FOR);
        assert_eq!(spared_for(&victim(Priority::BATCH, 9, 2000), false), Tokens::ZERO);
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
