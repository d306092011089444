//! May somebody enter? Rows, blocks now, blocks later.
//!
//! A request enters when its whole uncached prompt fits (a prompt that stalls half-way holds blocks and serves nobody),
//! when a watermark stays free for the growth of those who decode, and when the most that all are expected to hold at
//! any later time fits ([`Forecast`]). Into an empty engine the last two do not count, so that a request as large as
//! the pool can run alone.

use crate::config::{AdmissionRule, Config};
use crate::forecast::Forecast;
use crate::preemption::SPARED_AFTER;
use crate::scheduler::Scheduler;
use crate::sequence::Sequence;
use crate::sequences::Handle;
use crate::units::{Blocks, Micros, Tokens};

/// Waiting requests that one plan looks at: a bound on what a plan costs.
const LOOKED_AT: usize = 64;

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
    /// it. One that is deferred, or whose last sample or copy to host memory is in flight, is passed over without being
    /// counted: what it waits for comes soon.
    pub(crate) fn next_newcomer(&mut self, promised: Blocks, now: Micros) -> Option<Newcomer> {
        let seats = self.rows.any_free() && self.step_limit.admits(self.running.len());
        if self.queue.is_empty() || !seats || !self.queue.policy.lets_in() {
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
            if self.sequences[handle].unknown > 0 || self.is_deferred(handle) || self.is_being_swapped_out(handle) {
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
                let spread = self.lengths.spread_permille();
                let sequence = &self.sequences[handle];
                let outlook = self.lengths.outlook(sequence.tenant, sequence.max_new, sequence.sampled());
                let Some(forecast) = &self.forecast else { return true };
                // Blocks that neither are available nor go with any row (those that rows share) are not to be had.
                let capacity = available + self.kv.leaving() + forecast.held;
                forecast.fits(need, outlook, capacity, spread)
            }
        }
    }

    fn begin_forecast(&mut self) {
        let mut forecast = Forecast::new(self.config.block_size);
        for &handle in &self.running {
            let sequence = &self.sequences[handle];
            forecast.held += sequence.own_blocks();
            let outlook = self.lengths.outlook(sequence.tenant, sequence.max_new, sequence.sampled());
            forecast.add(sequence.own_blocks_to_be(self.config.block_size), outlook);
        }
        self.forecast = Some(forecast);
    }

    /// The newcomer sits now: later ones are measured with it.
    pub(crate) fn forecast_newcomer(&mut self, handle: Handle) {
        let sequence = &self.sequences[handle];
        if let Some(forecast) = &mut self.forecast {
            let outlook = self.lengths.outlook(sequence.tenant, sequence.max_new, sequence.sampled());
            forecast.add(sequence.own_blocks_to_be(self.config.block_size), outlook);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_available_and_neither_promised_nor_below_the_watermark() {
        let room = Room { available: Blocks(10), promised: Blocks(3), watermark: Blocks(2) };
        assert!(room.fits(Blocks(5)));
        assert!(!room.fits(Blocks(6)));
        let overdrawn = Room { available: Blocks(2), promised: Blocks(3), watermark: Blocks(0) };
        assert!(!overdrawn.fits(Blocks(1)));
    }
}
