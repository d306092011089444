//! May the head of the queue enter? Rows, blocks, and the gate that protects those who decode.
//!
//! Expected growth of the admitted (learned from finished lengths) belongs here, beside the watermark.

use crate::config::Config;
use crate::scheduler::Scheduler;
use crate::sequences::Handle;
use crate::units::{Blocks, Tokens};

/// While rows decode, a newcomer's prompt costs each of them time: let newcomers in only when enough of them wait, or
/// when they waited long enough.
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
    pub free: Blocks,
    /// Free blocks that rows already prefilling will take for the rest of their prompts. They are taken chunk by
    /// chunk, so the pool alone does not know of them.
    pub promised: Blocks,
    /// Blocks that stay free for the growth of those who decode.
    pub watermark: Blocks,
}

impl Room {
    pub fn fits(&self, need: Blocks) -> bool {
        self.free.saturating_sub(self.promised) >= need + self.watermark
    }
}

/// The share of the pool that admission leaves free, rounded up.
pub(crate) fn watermark(config: &Config) -> Blocks {
    let blocks = (u64::from(config.total_blocks.0) * u64::from(config.watermark_permille)).div_ceil(1000);
    Blocks(u32::try_from(blocks).unwrap_or(u32::MAX))
}

impl Scheduler {
    /// The head of the queue and the tokens it must compute, if it may enter now; nobody overtakes it.
    ///
    /// Everything it must compute has to fit at once: a prompt that stalls half-way holds blocks and serves nobody.
    /// Into an empty engine the watermark does not count, so that a request as large as the pool can run alone.
    pub(crate) fn next_newcomer(&self, promised: Blocks) -> Option<(Handle, Tokens)> {
        let head = self.queue.head()?;
        let sequence = &self.sequences[head];
        let watermark = if self.running.is_empty() { Blocks::ZERO } else { self.watermark };
        let room = Room { free: self.pool.free(), promised, watermark };
        // A sample still in flight is one more token to compute: it must be known first.
        let complete = sequence.unknown == 0;
        let fits = complete && self.rows.any_free() && room.fits(sequence.known().blocks(self.config.block_size));
        fits.then(|| (head, sequence.known()))
    }
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
    fn room_is_what_is_free_and_neither_promised_nor_below_the_watermark() {
        let room = Room { free: Blocks(10), promised: Blocks(3), watermark: Blocks(2) };
        assert!(room.fits(Blocks(5)));
        assert!(!room.fits(Blocks(6)));
        let overdrawn = Room { free: Blocks(2), promised: Blocks(3), watermark: Blocks(0) };
        assert!(!overdrawn.fits(Blocks(1)));
    }
}
