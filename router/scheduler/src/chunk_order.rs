//! Which prompt gets its chunk first: the one with the fewest tokens left, and now and then the one that waits longest.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::sequence::Sequence;
use crate::sequences::Handle;
use crate::units::{StepId, Tokens};

/// After this many plans that left some prefilling row without a chunk, one plan serves the row that waits longest
/// before all others.
///
/// So long prompts have at least this share of the steps: of `n` rows that prefill, each gets a chunk once in
/// `n × (TURN_AFTER + 1)` plans. And they have no more where shorter prompts wait, however many long ones there are.
pub(crate) const TURN_AFTER: u32 = 4;

/// A row in the middle of its prompt.
pub(crate) struct Prefilling {
    pub handle: Handle,
    left: Tokens,
    last_step: StepId,
    its_turn: bool,
}

impl Prefilling {
    pub fn new(handle: Handle, sequence: &Sequence) -> Self {
        Self { handle, left: sequence.to_prefill(), last_step: sequence.last_step, its_turn: false }
    }

    /// Before a newcomer with this many tokens?
    pub fn goes_before(&self, newcomer: Tokens) -> bool {
        self.its_turn || self.left <= newcomer
    }
}

/// Counts the plans that left somebody out.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Turns {
    missed: u32,
}

impl Turns {
    /// Sorts rows as chunks are given.
    pub fn order(&self, rows: &mut [Prefilling]) {
        rows.sort_unstable_by_key(|row| (row.left, row.handle));
        if self.missed < TURN_AFTER {
            return;
        }
        let longest = rows.iter().enumerate().max_by_key(|(_, row)| (Reverse(row.last_step), Reverse(row.handle)));
        if let Some((place, _)) = longest {
            rows[..=place].rotate_right(1);
            rows[0].its_turn = true;
        }
    }

    /// A plan was made with `order`; did some row get nothing?
    pub fn count(&mut self, missed: bool) {
        self.missed = if missed && self.missed < TURN_AFTER { self.missed + 1 } else { 0 };
    }
}
