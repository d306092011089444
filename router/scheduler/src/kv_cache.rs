//! The pool of KV blocks and the prefix tree over it, kept in step.
//!
//! What a block's KV was computed from is known only when the step that computed it has landed, so that is when it is
//! published: step by step, never when a request ends, and never anything that a failed or unfinished step should have
//! computed. A block that is published may be found and shared at once, also while its request still runs.

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::pool::BlockPool;
use crate::prefix_tree::PrefixTree;
use crate::request::CacheRoot;
use crate::units::{BlockId, Blocks, TokenId, Tokens};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KvCache {
    pool: BlockPool,
    tree: PrefixTree,
    block_size: Tokens,
    /// Without it nothing is published, so nothing is ever found.
    publishes: bool,
    pub evicted: u64,
    /// Kept for its allocation.
    #[serde(skip)]
    known: Vec<BlockId>,
}

/// One sequence's part of the cache: what `publish` needs to know of it.
pub(crate) struct Published<'a> {
    pub root: &'a CacheRoot,
    /// All tokens of the sequence.
    pub tokens: &'a [TokenId],
    /// Its block table.
    pub blocks: &'a mut [BlockId],
    /// Blocks of the table that are in the tree.
    pub from: u32,
    /// Blocks of the table that are computed wholly.
    pub to: u32,
}

impl KvCache {
    pub fn new(config: &Config) -> Self {
        Self {
            pool: BlockPool::new(config.total_blocks),
            tree: PrefixTree::new(config.block_size.0, config.total_blocks.0),
            block_size: config.block_size,
            publishes: config.prefix_cache,
            evicted: 0,
            known: Vec::new(),
        }
    }

    /// The session is gone, and all KV with it: every block is free, nothing is known.
    pub fn reset(&mut self) {
        self.pool = BlockPool::new(self.pool.total());
        self.tree = PrefixTree::new(self.block_size.0, self.pool.total().0);
    }

    /// Blocks that `take` can give: free ones, and cached ones that are given up then.
    pub fn available(&self) -> Blocks {
        self.pool.free() + self.pool.cached()
    }

    pub fn free(&self) -> Blocks {
        self.pool.free()
    }

    pub fn cached(&self) -> Blocks {
        self.pool.cached()
    }

    /// Blocks that are available as soon as the steps in flight have landed.
    pub fn leaving(&self) -> Blocks {
        self.pool.leaving()
    }

    pub fn total(&self) -> Blocks {
        self.pool.total()
    }

    /// Blocks of the table that no other sequence holds.
    pub fn private(&self, table: &[BlockId]) -> Blocks {
        Blocks(table.iter().filter(|block| self.pool.is_private(**block)).count() as u32)
    }

    /// A block for one sequence. Cached blocks are given up only when none is free.
    pub fn take(&mut self) -> Option<BlockId> {
        if self.pool.free() == Blocks::ZERO {
            let block = self.tree.evict(|block| self.pool.is_idle(block))?;
            self.pool.evict(block);
            self.evicted += 1;
        }
        self.pool.take()
    }

    /// Appends the blocks of the longest cached beginning of `tokens` to `found`, at most `limit`. Holds nothing.
    pub fn find(&self, root: &CacheRoot, tokens: &[TokenId], limit: Blocks, found: &mut Vec<BlockId>) {
        if self.publishes {
            self.tree.find(root, tokens, limit.0 as usize, found);
        }
    }

    /// Those of `found` that nobody holds: they count as available until somebody shares them.
    pub fn idle(&self, found: &[BlockId]) -> Blocks {
        Blocks(found.iter().filter(|block| self.pool.is_idle(**block)).count() as u32)
    }

    /// A sequence's table names the blocks that a lookup found.
    pub fn share(&mut self, found: &[BlockId]) {
        found.iter().for_each(|&block| self.pool.share(block));
        self.tree.use_again(found, |block| self.pool.is_idle(block));
    }

    pub fn let_go(&mut self, block: BlockId) {
        if self.pool.let_go(block) {
            self.tree.idle(block);
        }
    }

    /// A step in flight may write the block; call it before the sequence lets go.
    pub fn hold_for_step(&mut self, block: BlockId) {
        self.pool.hold_for_step(block);
    }

    pub fn step_landed(&mut self, block: BlockId) {
        if self.pool.step_landed(block) {
            self.tree.idle(block);
        }
    }

    /// For traces: rewrites the tokens and root keys that the tree knows. What was equal must stay equal, and what was
    /// not must not become so.
    pub fn hide(&mut self, tokens: impl FnMut(&mut [TokenId])) {
        self.tree.hide(tokens);
    }

    pub fn hide_roots(&mut self, root: impl FnMut(&CacheRoot) -> CacheRoot) {
        self.tree.hide_roots(root);
    }

    /// Publishes the blocks `from..to` of a table, whose KV is computed, and returns how many are published now.
    ///
    /// Where the tree has a block with the same tokens already, the table names that one from now on. If the sequence
    /// runs, it holds it, so that the way to whatever is published later stays held, and its own copies go to
    /// `replaced`, still held. If it does not (`None`), only the step that lands holds its blocks: nothing may be taken
    /// before that is over.
    pub fn publish(&mut self, of: Published<'_>, replaced: Option<&mut Vec<BlockId>>) -> u32 {
        if !self.publishes {
            return of.from;
        }
        let (from, to, size) = (of.from as usize, of.to as usize, self.block_size.0 as usize);
        let before = from.checked_sub(1).map(|before| of.blocks[before]);
        let own = &mut of.blocks[from..to];
        self.known.clear();
        let tokens = &of.tokens[from * size..to * size];
        self.tree.insert(of.root, before, of.from, tokens, own, &mut self.known);
        own[self.known.len()..].iter().for_each(|&block| self.pool.publish(block));
        let known = std::mem::take(&mut self.known);
        if let Some(replaced) = replaced {
            self.share(&known);
            replaced.extend_from_slice(&own[..known.len()]);
        }
        own[..known.len()].copy_from_slice(&known);
        self.known = known;
        of.to
    }
}

#[cfg(test)]
impl KvCache {
    pub fn free_blocks(&self) -> &[BlockId] {
        self.pool.free_blocks()
    }

    pub fn holders(&self, block: BlockId) -> crate::pool::Holders {
        self.pool.holders(block)
    }

    pub fn tree(&self) -> &PrefixTree {
        &self.tree
    }
}
