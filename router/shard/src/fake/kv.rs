//! A pretend KV cache: each slot holds the digest of the history that filled it.
//!
//! So it can tell whether a row still finds its own past in the blocks it names: a block that was freed too early and
//! given to another row holds the digest of another history. Equal prefixes have equal digests, so sharing them is fine.

use std::ops::Range;

use headrace_scheduler::{BlockCopy, BlockId, Blocks, SwapIn, SwapOut, Tokens};

#[derive(Debug)]
pub(super) struct KvCache {
    block_size: usize,
    slots: Vec<u64>,
    /// The same of host memory.
    host: Vec<u64>,
}

impl KvCache {
    /// An empty one. The memory is zeroed lazily by the operating system.
    pub(super) fn new(blocks: Blocks, host_blocks: Blocks, block_size: Tokens) -> Self {
        let block_size = block_size.0 as usize;
        let empty = |blocks: Blocks| vec![0; blocks.0 as usize * block_size];
        Self { block_size, slots: empty(blocks), host: empty(host_blocks) }
    }

    /// Is this table long enough for `end` positions, and does the pool have its blocks?
    pub(super) fn check_table(&self, table: &[BlockId], end: usize) -> Result<(), String> {
        let needed = end.div_ceil(self.block_size);
        if table.len() < needed {
            return Err(format!("has a block table of {} blocks, {end} positions need {needed}", table.len()));
        }
        let blocks = self.slots.len() / self.block_size;
        match table.iter().find(|block| block.0 as usize >= blocks) {
            Some(block) => Err(format!("names block {block} of a pool of {blocks}")),
            None => Ok(()),
        }
    }

    /// Does `position`, in the blocks of a checked table, still hold its history?
    pub(super) fn check(&self, table: &[BlockId], history: &[u64], position: usize) -> Result<(), String> {
        if self.slots[self.slot(table, position)] == history[position] {
            return Ok(());
        }
        let block = table[position / self.block_size];
        Err(format!(
            "finds another history at position {position} (block {block}): the block was never filled for it, \
             or freed and given away too early"
        ))
    }

    /// Checks the last position of every block before `start`, and the one before it.
    pub(super) fn check_all(&self, table: &[BlockId], history: &[u64], start: usize) -> Result<(), String> {
        let full = 1..=start / self.block_size;
        full.map(|block| block * self.block_size)
            .chain([start])
            .filter(|&end| end > 0)
            .try_for_each(|end| self.check(table, history, end - 1))
    }

    /// Checks the position before `start` and the last one of a block that `turn` picks: over a row's decode steps, all.
    pub(super) fn check_some(&self, table: &[BlockId], history: &[u64], start: usize, turn: u64) -> Result<(), String> {
        if let Some(block) = turn.checked_rem((start / self.block_size) as u64) {
            self.check(table, history, (block as usize + 1) * self.block_size - 1)?;
        }
        self.check(table, history, start - 1)
    }

    /// Copies blocks to host memory, then others back, before anything else of a step.
    pub(super) fn swap(&mut self, out: &[SwapOut], back: &[SwapIn]) -> Result<(), String> {
        let pairs = out.iter().map(|swap| (swap.block, swap.host));
        let size = self.block_size;
        for (block, host) in pairs.chain(back.iter().map(|swap| (swap.block, swap.host))) {
            if self.place(block.0).end > self.slots.len() || self.place(host.0).end > self.host.len() {
                let (blocks, hosts) = (self.slots.len() / size, self.host.len() / size);
                return Err(format!("swaps block {block} and host block {host} of a pool of {blocks} and {hosts}"));
            }
        }
        for swap in out {
            let (from, to) = (self.place(swap.block.0), self.place(swap.host.0));
            self.host[to].copy_from_slice(&self.slots[from]);
        }
        for swap in back {
            let (from, to) = (self.place(swap.host.0), self.place(swap.block.0));
            self.slots[to].copy_from_slice(&self.host[from]);
        }
        Ok(())
    }

    /// The slots of a block, of the pool or of host memory.
    fn place(&self, block: u32) -> Range<usize> {
        block as usize * self.block_size..(block as usize + 1) * self.block_size
    }

    /// Copies blocks, before anything of a step is computed.
    pub(super) fn copy(&mut self, copies: &[BlockCopy]) -> Result<(), String> {
        for copy in copies {
            let (from, to) = (self.place(copy.from.0), self.place(copy.to.0));
            if from.end.max(to.end) > self.slots.len() {
                return Err(format!("copies block {} to {}, which the pool does not have", copy.from, copy.to));
            }
            self.slots.copy_within(from, to.start);
        }
        Ok(())
    }

    /// Computes positions `start … end`.
    pub(super) fn fill(&mut self, table: &[BlockId], history: &[u64], start: usize, end: usize) {
        for (position, &digest) in history.iter().enumerate().take(end).skip(start) {
            let slot = self.slot(table, position);
            self.slots[slot] = digest;
        }
    }

    fn slot(&self, table: &[BlockId], position: usize) -> usize {
        table[position / self.block_size].0 as usize * self.block_size + position % self.block_size
    }
}
