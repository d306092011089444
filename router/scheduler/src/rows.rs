//! The rows of the running batch: who may sit down, and whom the shard may forget.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::units::{Epoch, Row};

/// One holding of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub row: Row,
    pub epoch: Epoch,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Rows {
    free: BTreeSet<Row>,
    total: u32,
    next_epoch: u64,
    /// Seats given back that the shard has not been told of.
    released: VecDeque<Seat>,
}

impl Rows {
    pub fn new(total: u32) -> Self {
        Self { free: (0..total).map(Row).collect(), total, next_epoch: 1, released: VecDeque::new() }
    }

    pub fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The lowest free row, in a new epoch.
    pub fn take(&mut self) -> Option<Seat> {
        let row = self.free.pop_first()?;
        let epoch = Epoch(self.next_epoch);
        self.next_epoch += 1;
        Some(Seat { row, epoch })
    }

    /// The row is free at once, also for the plan being made: the new holder's epoch tells the two apart.
    pub fn give_back(&mut self, seat: Seat) {
        self.free.insert(seat.row);
        self.released.push_back(seat);
    }

    pub fn poll_release(&mut self) -> Option<Seat> {
        self.released.pop_front()
    }

    /// The session is gone: a new shard knows no rows, so there is nothing to tell it. Epochs go on.
    pub fn reset(&mut self) {
        self.free = (0..self.total).map(Row).collect();
        self.released.clear();
    }
}
