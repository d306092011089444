//! May somebody enter? Rows, blocks now, blocks later, and the gate that protects those who decode.
//!
//! A request enters when its whole uncached prompt fits (a prompt that stalls half-way holds blocks and serves nobody),
//! when a watermark stays free for the growth of those who decode, and when the most that all are expected to hold at
//! any later time fits ([`Forecast`]). Into an empty engine the last two do not count, so that a request as large as
//! the pool can run alone.

use serde::{Deserialize, Serialize};

use crate::config::{AdmissionRule, Config};
use crate::preemption::SPARED_AFTER;
use crate::queue::Deferral;
use crate::scheduler::Scheduler;
use crate::sequence::Sequence;
use crate::sequences::Handle;
use crate::units::{Blocks, Micros, Tokens};

/// Waiting requests that one plan looks at: a bound on what a plan costs.
const LOOKED_AT: usize = 64;

/// A waiting request waits on for another's blocks only if it would compute at least this many of them itself: a shared
/// line of a template defers nobody.
const WORTH_WAITING: u32 = 4;

/// While rows decode, a newcomer's prompt costs each of them time: let newcomers in only when enough of them wait, or
/// when they waited long enough.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Gate {
    ratio_permille: u32,
    max_decode_steps: u32,
    /// Steps with decode rows since the last admission.
    decode_steps: u32,
}

impl Gate {
    pub fn new(config: &Config) -> Self {
        Self {
            ratio_permille: config.waiting_served_ratio_permille,
            max_decode_steps: config.max_waiting_tokens,
            decode_steps: 0,
        }
    }

    pub fn is_open(&self, waiting: usize, running: usize, decoding: usize) -> bool {
        let enough_wait = waiting as u64 * 1000 >= u64::from(self.ratio_permille) * running as u64;
        decoding == 0 || enough_wait || self.decode_steps >= self.max_decode_steps
    }

    /// A step was planned.
    pub fn count(&mut self, decodes: bool, admits: bool) {
        match (admits, decodes) {
            (true, _) => self.decode_steps = 0,
            (false, true) => self.decode_steps = self.decode_steps.saturating_add(1),
            (false, false) => {}
        }
    }
}

/// What the pool can still promise.
pub(crate) struct Room {
    pub available: Blocks,
    /// Available blocks that rows already prefilling will take for the rest of their prompts. They are taken chunk by
    /// chunk, so the pool alone does not know of them.
    pub promised: Blocks,
    /// Blocks that stay available for the growth of those who decode.
    pub watermark: Blocks,
}

impl Room {
    pub fn fits(&self, need: Blocks) -> bool {
        self.available.saturating_sub(self.promised) >= need + self.watermark
    }
}

/// The share of the pool that admission leaves free, rounded up.
pub(crate) fn watermark(config: &Config) -> Blocks {
    let blocks = (u64::from(config.total_blocks.0) * u64::from(config.watermark_permille)).div_ceil(1000);
    Blocks(u32::try_from(blocks).unwrap_or(u32::MAX))
}

/// What a row will hold: blocks that go when it goes, and the tokens it is expected to grow by until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    pub left: Tokens,
    pub blocks: Blocks,
}

/// The most that all rows together are expected to hold at any later time: each grows by a token a step until its
/// expected end, and leaves then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forecast {
    /// Who stays longest comes first.
    rows: Vec<Growth>,
    /// Blocks that rows hold now, and nobody else does.
    pub held: Blocks,
}

impl Forecast {
    pub fn of(rows: impl Iterator<Item = Growth>) -> Self {
        let mut rows: Vec<Growth> = rows.collect();
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.left));
        Self { rows, held: Blocks::ZERO }
    }

    pub fn add(&mut self, growth: Growth) {
        let place = self.rows.partition_point(|row| row.left >= growth.left);
        self.rows.insert(place, growth);
    }

    /// The peak with one more row. It is reached just before somebody leaves: then everybody who stays at least as long
    /// has grown by what the leaver grew.
    pub fn peak_with(&self, newcomer: Growth, block_size: Tokens) -> u64 {
        let place = self.rows.partition_point(|row| row.left >= newcomer.left);
        let (mut held, mut count, mut peak) = (0_u64, 0_u64, 0_u64);
        let rows = self.rows[..place].iter().chain(std::iter::once(&newcomer)).chain(&self.rows[place..]);
        for row in rows {
            held += u64::from(row.blocks.0);
            count += 1;
            // Rows cross a block's border at different times: together they take what they grow by, not a block each.
            peak = peak.max(held + (count * u64::from(row.left.0)).div_ceil(u64::from(block_size.0)));
        }
        peak
    }
}

/// Who enters next, and what of it is cached (in `Scheduler::found`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer {
    pub handle: Handle,
    /// Tokens it must compute.
    pub uncached: Tokens,
}

impl Scheduler {
    /// Who may enter now, in the policy's order. `promised` as in [`Room`].
    ///
    /// A request that waits for blocks may be overtaken by those that fit, `max_skips` times; then nobody enters before
    /// it. One that is deferred, or whose last sample is in flight, is passed over without being counted: what it waits
    /// for comes soon.
    pub(crate) fn next_newcomer(&mut self, promised: Blocks, now: Micros) -> Option<Newcomer> {
        if self.queue.is_empty() || !self.rows.any_free() || !self.queue.policy.lets_in() {
            return None;
        }
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        match self.room_for {
            Some(head) => candidates.extend(self.queue.get(head).map(|_| head)),
            None => self.queue.policy.order(now, LOOKED_AT, &mut candidates),
        }
        let mut blocked = None;
        let mut newcomer = None;
        for &handle in &candidates {
            if self.sequences[handle].unknown > 0 || self.is_deferred(handle) {
                continue;
            }
            let waits_for_an_end = self.would_thrash(handle);
            if let Some(uncached) = if waits_for_an_end { None } else { self.fits(handle, promised) } {
                newcomer = Some(Newcomer { handle, uncached });
                break;
            }
            let first = *blocked.get_or_insert(handle);
            if self.queue.get(first).is_none_or(|waiting| waiting.skips >= self.config.max_skips) {
                break;
            }
        }
        self.candidates = candidates;
        if let (Some(_), Some(overtaken)) = (newcomer, blocked.and_then(|handle| self.queue.get_mut(handle))) {
            overtaken.skips += 1;
        }
        newcomer
    }

    /// A request that was a victim twice does not try a third time before somebody else has ended: until then the pool is
    /// as short as it was.
    pub(crate) fn would_thrash(&self, handle: Handle) -> bool {
        let sequence = &self.sequences[handle];
        let nobody_ended = sequence.victim_at == self.counters.finished.total();
        sequence.preemptions >= SPARED_AFTER && nobody_ended && !self.running.is_empty()
    }

    /// The tokens that a waiting request must compute, if it may enter now.
    pub(crate) fn fits(&mut self, handle: Handle, promised: Blocks) -> Option<Tokens> {
        let alone = self.running.is_empty();
        let block_size = self.config.block_size;
        self.find(handle);
        let sequence = &self.sequences[handle];
        let found = Blocks(self.found.len() as u32);
        let need = sequence.known().blocks(block_size) - found;
        let watermark = if alone { Blocks::ZERO } else { self.watermark };
        // What is found idle counts as available until it is held.
        let available = self.kv.available() - self.kv.idle(&self.found);
        let fits = Room { available, promised, watermark }.fits(need);
        let uncached = sequence.known() - sequence.at_hand(found, block_size);
        (fits && (alone || self.fits_later(handle, need, available))).then_some(uncached)
    }

    /// The cached beginning of a request's tokens, into `found`.
    pub(crate) fn find(&mut self, handle: Handle) {
        let sequence = &self.sequences[handle];
        self.found.clear();
        let limit = sequence.findable(self.config.block_size);
        self.kv.find(&sequence.root, &sequence.tokens, limit, &mut self.found);
    }

    /// Rule (c): what all are expected to hold later fits too.
    fn fits_later(&mut self, handle: Handle, need: Blocks, available: Blocks) -> bool {
        match self.config.admission {
            AdmissionRule::Watermark => true,
            AdmissionRule::Reserve => {
                let reserved = |sequence: &Sequence| sequence.most_blocks(self.config.block_size).0;
                let running: u32 = self.running.iter().map(|&handle| reserved(&self.sequences[handle])).sum();
                running + reserved(&self.sequences[handle]) <= self.config.total_blocks.0
            }
            AdmissionRule::Learned => {
                if self.forecast.is_none() {
                    self.begin_forecast();
                }
                let newcomer = self.growth_of_newcomer(handle, need);
                let Some(forecast) = &self.forecast else { return true };
                // Blocks that neither are available nor go with any row (those that rows share) are not to be had.
                let capacity = u64::from((available + self.kv.leaving() + forecast.held).0);
                forecast.peak_with(newcomer, self.config.block_size) <= capacity
            }
        }
    }

    fn begin_forecast(&mut self) {
        let block_size = self.config.block_size;
        for &handle in &self.running {
            let sequence = &mut self.sequences[handle];
            if sequence.sampled() >= sequence.expected {
                let more = self.lengths.expect(sequence.tenant, sequence.max_new, sequence.sampled());
                sequence.expected = sequence.sampled() + more;
            }
        }
        let sequences = &self.sequences;
        let held = self.running.iter().fold(Blocks::ZERO, |sum, &handle| sum + sequences[handle].own_blocks());
        let forecast = Forecast::of(self.running.iter().map(|&handle| sequences[handle].growth(block_size)));
        self.forecast = Some(Forecast { held, ..forecast });
    }

    fn growth_of_newcomer(&self, handle: Handle, need: Blocks) -> Growth {
        let sequence = &self.sequences[handle];
        let left = self.lengths.expect(sequence.tenant, sequence.max_new, sequence.generated());
        Growth { left, blocks: need }
    }

    /// The newcomer sits now: later ones are measured with it.
    pub(crate) fn forecast_newcomer(&mut self, handle: Handle) {
        let sequence = &self.sequences[handle];
        let more = self.lengths.expect(sequence.tenant, sequence.max_new, sequence.generated());
        let block_size = self.config.block_size;
        let sequence = &mut self.sequences[handle];
        sequence.expected = sequence.generated() + more;
        if let Some(forecast) = &mut self.forecast {
            forecast.add(sequence.growth(block_size));
        }
    }

    /// Another request is computing, right now, what this one begins with: better to wait for it than to compute it
    /// twice. Released at once when the other ends or loses its row.
    fn is_deferred(&mut self, handle: Handle) -> bool {
        if !self.config.prefix_cache || !self.sequences[handle].reads_cache {
            return false;
        }
        if let Some(deferral) = self.queue.get(handle).and_then(|waiting| waiting.deferred) {
            let first = self.sequences.get(deferral.first);
            if first.is_some_and(|first| first.is_running() && first.published < deferral.until) {
                return true;
            }
        }
        let deferred = self.find_deferral(handle);
        if let Some(waiting) = self.queue.get_mut(handle) {
            waiting.deferred = deferred;
        }
        deferred.is_some()
    }

    /// Lists who is computing a prompt, once a plan; who enters later in it is added.
    pub(crate) fn begin_deferrals(&mut self) {
        self.publishing.clear();
        if self.config.prefix_cache && !self.queue.is_empty() {
            let block_size = self.config.block_size;
            let publishing = |handle: &&Handle| self.sequences[**handle].is_publishing_prompt(block_size);
            self.publishing.extend(self.running.iter().filter(publishing));
        }
    }

    fn find_deferral(&mut self, handle: Handle) -> Option<Deferral> {
        let block_size = self.config.block_size;
        if self.publishing.is_empty() {
            return None;
        }
        self.find(handle);
        let (found, sequence) = (self.found.len() as u32, &self.sequences[handle]);
        let limit = sequence.findable(block_size);
        let others = self.publishing.iter().filter(|first| self.sequences[**first].root == sequence.root);
        let deferral = |&first: &Handle| {
            let other = &self.sequences[first];
            let computed = &other.tokens[..other.prefill_end.0 as usize];
            let until = common_blocks(computed, &sequence.tokens, self.config.block_size).min(limit);
            (until.0 >= found + WORTH_WAITING && other.published < until).then_some(Deferral { first, until })
        };
        others.filter_map(deferral).max_by_key(|deferral| (deferral.until, std::cmp::Reverse(deferral.first)))
    }
}

fn common_blocks(a: &[u32], b: &[u32], block_size: Tokens) -> Blocks {
    let size = block_size.0 as usize;
    let pairs = a.chunks_exact(size).zip(b.chunks_exact(size));
    Blocks(pairs.take_while(|(a, b)| a == b).count() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(ratio_permille: u32, max_decode_steps: u32) -> Gate {
        Gate { ratio_permille, max_decode_steps, decode_steps: 0 }
    }

    #[test]
    fn the_gate_is_open_when_nobody_decodes() {
        assert!(gate(u32::MAX, u32::MAX).is_open(1, 9, 0));
    }

    #[test]
    fn the_gate_opens_when_enough_wait_for_those_who_run() {
        assert!(!gate(300, 20).is_open(2, 10, 10));
        assert!(gate(300, 20).is_open(3, 10, 10));
    }

    #[test]
    fn the_gate_opens_after_enough_decode_steps_and_an_admission_starts_the_count_anew() {
        let mut gate = gate(1000, 2);
        gate.count(true, false);
        assert!(!gate.is_open(1, 10, 10));
        gate.count(true, false);
        assert!(gate.is_open(1, 10, 10));
        gate.count(true, true);
        assert!(!gate.is_open(1, 10, 10));
    }

    #[test]
    fn a_step_without_decode_rows_does_not_count_as_waiting() {
        let mut gate = gate(1000, 1);
        gate.count(false, false);
        assert!(!gate.is_open(1, 10, 10));
    }

    #[test]
    fn with_both_at_zero_the_gate_is_always_open() {
        assert!(gate(0, 0).is_open(1, 256, 256));
    }

    #[test]
    fn room_is_what_is_available_and_neither_promised_nor_below_the_watermark() {
        let room = Room { available: Blocks(10), promised: Blocks(3), watermark: Blocks(2) };
        assert!(room.fits(Blocks(5)));
        assert!(!room.fits(Blocks(6)));
        let overdrawn = Room { available: Blocks(2), promised: Blocks(3), watermark: Blocks(0) };
        assert!(!overdrawn.fits(Blocks(1)));
    }

    fn growth(left: u32, blocks: u32) -> Growth {
        Growth { left: Tokens(left), blocks: Blocks(blocks) }
    }

    #[test]
    fn the_peak_is_reached_just_before_somebody_leaves() {
        let forecast = Forecast::of([growth(160, 2), growth(16, 50)].into_iter());
        // After 16 steps: 2 + 50 + 1 held, and each of three grew by a block. Later only the first and the newcomer.
        assert_eq!(forecast.peak_with(growth(64, 1), Tokens(16)), 53 + 3);
        // A newcomer that stays as long as the first: both grow by ten blocks.
        assert_eq!(forecast.peak_with(growth(160, 60), Tokens(16)), 112 + 3);
        let forecast = Forecast::of(std::iter::empty());
        assert_eq!(forecast.peak_with(growth(160, 60), Tokens(16)), 70);
    }

    #[test]
    fn who_was_added_counts_for_the_next() {
        let mut forecast = Forecast::of([growth(16, 1)].into_iter());
        let before = forecast.peak_with(growth(32, 1), Tokens(16));
        forecast.add(growth(320, 10));
        assert!(forecast.peak_with(growth(32, 1), Tokens(16)) > before + 10);
        assert!(forecast.rows.is_sorted_by(|a, b| a.left >= b.left));
    }

    #[test]
    fn common_blocks_are_whole_and_from_the_start() {
        assert_eq!(common_blocks(&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 6], Tokens(2)), Blocks(2));
        assert_eq!(common_blocks(&[1, 2, 3, 4], &[1, 2, 3], Tokens(2)), Blocks(1));
        assert_eq!(common_blocks(&[9, 2, 3, 4], &[1, 2, 3, 4], Tokens(2)), Blocks(0));
    }
}
