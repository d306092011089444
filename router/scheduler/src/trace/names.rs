//! Numbers instead of contents: what a trace may know of tokens and of cache roots.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

use crate::request::CacheRoot;
use crate::scheduler::Scheduler;
use crate::units::{RequestId, TokenId, Tokens};

/// The token id that ends an answer in a replay.
pub(crate) const END: TokenId = TokenId::MAX;
/// Ids from here on stand for tokens of blocks that never filled up: no two are equal.
const UNNAMED: TokenId = 1 << 31;

/// The numbers of one segment. Grows with what the segment holds, so segments are bounded.
#[derive(Default)]
pub(crate) struct Names {
    /// Looked up only, never walked: its order decides nothing.
    blocks: HashMap<Box<[TokenId]>, u32, BuildHasherDefault<DefaultHasher>>,
    roots: BTreeMap<CacheRoot, u32>,
}

impl Names {
    /// The number of a full block.
    pub fn block(&mut self, tokens: &[TokenId]) -> u32 {
        if let Some(&number) = self.blocks.get(tokens) {
            return number;
        }
        let number = self.blocks.len() as u32;
        self.blocks.insert(tokens.into(), number);
        number
    }

    pub fn root(&mut self, root: &CacheRoot) -> u32 {
        let next = self.roots.len() as u32;
        *self.roots.entry(root.clone()).or_insert(next)
    }

    /// Replaces the tokens of all full blocks by their number, `block_size` times, and others by nothing that says
    /// anything.
    pub fn hide(&mut self, tokens: &mut [TokenId], block_size: Tokens) {
        for block in tokens.chunks_mut(block_size.0 as usize) {
            let hidden = if block.len() == block_size.0 as usize { self.block(block) } else { UNNAMED };
            block.fill(hidden);
        }
    }

    pub fn hide_root(&mut self, root: &CacheRoot) -> CacheRoot {
        numbered(self.root(root))
    }

    /// A copy of the scheduler that knows no tokens.
    pub fn hide_all(&mut self, scheduler: &Scheduler) -> Scheduler {
        let mut hidden = scheduler.clone();
        let block_size = hidden.config.block_size;
        let handles: Vec<_> = hidden.sequences.handles().collect();
        for handle in handles {
            let sequence = &mut hidden.sequences[handle];
            self.hide(&mut sequence.tokens, block_size);
            sequence.root = self.hide_root(&sequence.root);
        }
        hidden.kv.hide(|tokens| self.hide(tokens, block_size));
        hidden.kv.hide_roots(|root| self.hide_root(root));
        hidden.config.eos = vec![END];
        hidden
    }
}

/// A root as a replay sees it.
pub(crate) fn numbered(root: u32) -> CacheRoot {
    CacheRoot { adapter: Some(root), ..CacheRoot::default() }
}

/// Stands for tokens of a request whose block got no number in the segment.
pub(crate) fn unnamed(request: RequestId) -> TokenId {
    UNNAMED | (request.0 as u32 & (UNNAMED - 2))
}
