//! Host memory for the KV of preempted requests, where the shard has some: copied out when they lose their row, and in
//! again when they get another. The copy is a verb of the plan; this file only knows which host block is whose.

use serde::{Deserialize, Serialize};

use crate::units::{Blocks, HostBlock, Tokens};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostPool {
    free: Vec<HostBlock>,
    /// Given back in the plan being made. Copies out come before copies in there, so they may be used in the next only.
    leaving: Vec<HostBlock>,
    total: Blocks,
}

/// KV of a request in host memory: of its first `tokens`, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Swapped {
    pub blocks: Vec<HostBlock>,
    pub tokens: Tokens,
}

impl HostPool {
    pub fn new(total: Blocks) -> Self {
        Self { free: (0..total.0).rev().map(HostBlock).collect(), leaving: Vec::new(), total }
    }

    /// The session is gone: a new shard's host memory is empty.
    pub fn reset(&mut self) {
        *self = Self::new(self.total);
    }

    pub fn take(&mut self, count: Blocks) -> Option<Vec<HostBlock>> {
        let rest = self.free.len().checked_sub(count.0 as usize)?;
        Some(self.free.split_off(rest))
    }

    pub fn give_back(&mut self, swapped: Swapped) {
        self.leaving.extend(swapped.blocks);
    }

    /// A plan is complete.
    pub fn planned(&mut self) {
        self.free.append(&mut self.leaving);
    }

    pub fn used(&self) -> Blocks {
        self.total - Blocks((self.free.len() + self.leaving.len()) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_may_be_taken_in_the_next_plan() {
        let mut pool = HostPool::new(Blocks(2));
        let blocks = pool.take(Blocks(2)).expect("two");
        pool.give_back(Swapped { blocks, tokens: Tokens(5) });
        assert_eq!((pool.take(Blocks(1)), pool.used()), (None, Blocks(0)));
        pool.planned();
        assert!(pool.take(Blocks(2)).is_some());
        assert_eq!(pool.take(Blocks(1)), None);
    }
}
