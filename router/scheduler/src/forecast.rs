//! What all rows together are expected to hold later.

use std::cmp::Reverse;
use std::iter::once;

use crate::units::{Blocks, Tokens};

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
        rows.sort_unstable_by_key(|row| Reverse(row.left));
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
        let rows = self.rows[..place].iter().chain(once(&newcomer)).chain(&self.rows[place..]);
        for row in rows {
            held += u64::from(row.blocks.0);
            count += 1;
            // Rows cross a block's border at different times: together they take what they grow by, not a block each.
            peak = peak.max(held + (count * u64::from(row.left.0)).div_ceil(u64::from(block_size.0)));
        }
        peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
