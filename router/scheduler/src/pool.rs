//! The KV blocks: who holds which.
//!
//! A block is held by sequences (those whose table names it) and by steps in flight that may still write it after its
//! sequence let go. It is free when nobody holds it. The prefix cache will be a third kind of holder.

use crate::units::{BlockId, Blocks};

/// All blocks of the shard, with a count of holders for each.
pub(crate) struct BlockPool {
    /// A stack: the block freed last is taken first, while it is warm in the shard's caches.
    free: Vec<BlockId>,
    holders: Vec<Holders>,
    /// Blocks that only steps in flight hold.
    leaving: Blocks,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Holders {
    pub sequences: u32,
    pub steps: u32,
}

impl BlockPool {
    pub fn new(total: Blocks) -> Self {
        let free = (0..total.0).rev().map(BlockId).collect();
        Self { free, holders: vec![Holders::default(); total.0 as usize], leaving: Blocks::ZERO }
    }

    pub fn free(&self) -> Blocks {
        Blocks(self.free.len() as u32)
    }

    /// Blocks that are free as soon as the steps in flight have landed.
    pub fn leaving(&self) -> Blocks {
        self.leaving
    }

    pub fn total(&self) -> Blocks {
        Blocks(self.holders.len() as u32)
    }

    /// A free block, held by one sequence from now on.
    pub fn take(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        self.of(block).sequences = 1;
        Some(block)
    }

    /// A sequence's table no longer names the block.
    pub fn let_go(&mut self, block: BlockId) {
        let holders = self.of(block);
        holders.sequences -= 1;
        match *holders {
            Holders { sequences: 0, steps: 0 } => self.free.push(block),
            Holders { sequences: 0, .. } => self.leaving += Blocks(1),
            _ => {}
        }
    }

    /// A step in flight may write the block; call it before the sequence lets go.
    pub fn hold_for_step(&mut self, block: BlockId) {
        self.of(block).steps += 1;
    }

    /// A step that held the block has landed.
    pub fn step_landed(&mut self, block: BlockId) {
        let holders = self.of(block);
        holders.steps -= 1;
        if *holders == Holders::default() {
            self.leaving -= Blocks(1);
            self.free.push(block);
        }
    }

    fn of(&mut self, block: BlockId) -> &mut Holders {
        &mut self.holders[block.0 as usize]
    }
}

#[cfg(test)]
impl BlockPool {
    pub fn free_blocks(&self) -> &[BlockId] {
        &self.free
    }

    pub fn holders(&self, block: BlockId) -> Holders {
        self.holders[block.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_free_when_its_sequence_lets_go_and_no_step_holds_it() {
        let mut pool = BlockPool::new(Blocks(1));
        let block = pool.take().expect("one block");
        assert_eq!(pool.take(), None);
        pool.let_go(block);
        assert_eq!((pool.free(), pool.leaving()), (Blocks(1), Blocks(0)));
    }

    #[test]
    fn a_block_that_a_step_holds_is_leaving_until_the_step_lands() {
        let mut pool = BlockPool::new(Blocks(1));
        let block = pool.take().expect("one block");
        pool.hold_for_step(block);
        pool.let_go(block);
        assert_eq!((pool.free(), pool.leaving()), (Blocks(0), Blocks(1)));
        assert_eq!(pool.take(), None);
        pool.step_landed(block);
        assert_eq!((pool.free(), pool.leaving()), (Blocks(1), Blocks(0)));
    }

    #[test]
    fn a_block_that_two_steps_hold_is_free_after_the_second() {
        let mut pool = BlockPool::new(Blocks(1));
        let block = pool.take().expect("one block");
        pool.hold_for_step(block);
        pool.hold_for_step(block);
        pool.let_go(block);
        pool.step_landed(block);
        assert_eq!((pool.free(), pool.leaving()), (Blocks(0), Blocks(1)));
        pool.step_landed(block);
        assert_eq!((pool.free(), pool.leaving()), (Blocks(1), Blocks(0)));
    }
}
