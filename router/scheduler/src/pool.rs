//! The KV blocks: who holds which.
//!
//! A block is held by sequences (those whose table names it) and by steps in flight that may still write it after its
//! sequence let go. Held by nobody, it is *cached* if the prefix tree names it, else *free*.

use serde::{Deserialize, Serialize};

use crate::units::{BlockId, Blocks};

/// All blocks of the shard, with a count of holders for each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BlockPool {
    /// A stack: the block freed last is taken first, while it is warm in the shard's caches.
    free: Vec<BlockId>,
    holders: Vec<Holders>,
    /// Blocks that only steps in flight hold.
    leaving: Blocks,
    /// Blocks of the prefix tree that nobody holds.
    cached: Blocks,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Holders {
    pub sequences: u32,
    pub steps: u32,
    /// The prefix tree names the block.
    pub published: bool,
}

impl Holders {
    fn is_idle(self) -> bool {
        self.sequences == 0 && self.steps == 0
    }
}

impl BlockPool {
    pub fn new(total: Blocks) -> Self {
        let free = (0..total.0).rev().map(BlockId).collect();
        let holders = vec![Holders::default(); total.0 as usize];
        Self { free, holders, leaving: Blocks::ZERO, cached: Blocks::ZERO }
    }

    pub fn free(&self) -> Blocks {
        Blocks(self.free.len() as u32)
    }

    pub fn cached(&self) -> Blocks {
        self.cached
    }

    /// Blocks that are free or cached as soon as the steps in flight have landed.
    pub fn leaving(&self) -> Blocks {
        self.leaving
    }

    pub fn total(&self) -> Blocks {
        Blocks(self.holders.len() as u32)
    }

    pub fn is_idle(&self, block: BlockId) -> bool {
        self.holders[block.0 as usize].is_idle()
    }

    /// One sequence holds the block, and nobody else.
    pub fn is_private(&self, block: BlockId) -> bool {
        self.holders[block.0 as usize].sequences == 1
    }

    /// A free block, held by one sequence from now on.
    pub fn take(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        self.of(block).sequences = 1;
        Some(block)
    }

    /// One more sequence's table names a published block.
    pub fn share(&mut self, block: BlockId) {
        let holders = self.of(block);
        let before = *holders;
        holders.sequences += 1;
        if before.is_idle() {
            self.cached -= Blocks(1);
        } else if before.sequences == 0 {
            self.leaving -= Blocks(1);
        }
    }

    /// A sequence's table no longer names the block. `true`: it is cached now.
    pub fn let_go(&mut self, block: BlockId) -> bool {
        let holders = self.of(block);
        holders.sequences -= 1;
        match *holders {
            Holders { sequences: 0, steps: 0, .. } => self.rest(block),
            Holders { sequences: 0, .. } => {
                self.leaving += Blocks(1);
                false
            }
            _ => false,
        }
    }

    /// A step in flight may write the block; call it before the sequence lets go.
    pub fn hold_for_step(&mut self, block: BlockId) {
        self.of(block).steps += 1;
    }

    /// A step that held the block has landed. `true`: it is cached now.
    pub fn step_landed(&mut self, block: BlockId) -> bool {
        let holders = self.of(block);
        holders.steps -= 1;
        if holders.is_idle() {
            self.leaving -= Blocks(1);
            return self.rest(block);
        }
        false
    }

    /// The prefix tree names the block, which somebody holds.
    pub fn publish(&mut self, block: BlockId) {
        self.of(block).published = true;
    }

    /// The prefix tree gave up the block, which nobody holds: it is free.
    pub fn evict(&mut self, block: BlockId) {
        self.of(block).published = false;
        self.cached -= Blocks(1);
        self.free.push(block);
    }

    /// Nobody holds the block any more.
    fn rest(&mut self, block: BlockId) -> bool {
        let published = self.of(block).published;
        if published {
            self.cached += Blocks(1);
        } else {
            self.free.push(block);
        }
        published
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
        assert!(!pool.let_go(block));
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

    #[test]
    fn a_published_block_that_nobody_holds_is_cached_until_it_is_shared_or_evicted() {
        let mut pool = BlockPool::new(Blocks(1));
        let block = pool.take().expect("one block");
        pool.publish(block);
        assert!(pool.let_go(block));
        assert_eq!((pool.free(), pool.cached()), (Blocks(0), Blocks(1)));
        pool.share(block);
        assert_eq!(pool.cached(), Blocks(0));
        assert!(pool.let_go(block));
        pool.evict(block);
        assert_eq!((pool.free(), pool.cached()), (Blocks(1), Blocks(0)));
    }

    #[test]
    fn a_published_block_may_be_shared_while_only_a_step_holds_it() {
        let mut pool = BlockPool::new(Blocks(1));
        let block = pool.take().expect("one block");
        pool.publish(block);
        pool.hold_for_step(block);
        pool.let_go(block);
        assert_eq!(pool.leaving(), Blocks(1));
        pool.share(block);
        assert_eq!(pool.leaving(), Blocks(0));
        assert!(!pool.step_landed(block));
        assert_eq!((pool.free(), pool.cached()), (Blocks(0), Blocks(0)));
    }
}
