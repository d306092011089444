//! Waiting for a prefix that somebody else computes right now, instead of computing it twice.

use std::cmp::Reverse;

use crate::queue::Deferral;
use crate::scheduler::Scheduler;
use crate::sequences::Handle;
use crate::units::{Blocks, Tokens};

/// A waiting request waits on for another's blocks only if it would compute at least this many of them itself: a shared
/// line of a template defers nobody.
const WORTH_WAITING: u32 = 4;

/// Where both have the same prompt (choices of one request, or one question asked by many) one block is enough: they
/// come together and in numbers, and all but the first save nearly everything. The same are prompts of one length with
/// the same whole blocks: of the tokens behind those nobody saves anything, and a trace does not know them.
const WORTH_WAITING_FOR_THE_SAME: u32 = 1;

impl Scheduler {
    /// Another request is computing, right now, what this one begins with: better to wait for it than to compute it
    /// twice. Released at once when the other ends or loses its row.
    pub(crate) fn is_deferred(&mut self, handle: Handle) -> bool {
        if !self.config.prefix_cache || !self.sequences[handle].reads_cache {
            return false;
        }
        if self.waits_for_fork(handle) {
            return true;
        }
        if let Some(deferral) = self.queue.get(handle).and_then(|waiting| waiting.deferred) {
            let first = self.sequences.get(deferral.first);
            if first.is_some_and(|first| first.is_running() && first.published < deferral.until) {
                return true;
            }
        }
        let deferred = self.find_deferral(handle);
        if let Some(waiting) = self.queue.get_mut(handle) {
            waiting.deferred = deferred;
        }
        deferred.is_some()
    }

    /// Lists who is computing a prompt, once a plan; who enters later in it is added.
    pub(crate) fn begin_deferrals(&mut self) {
        self.publishing.clear();
        if self.config.prefix_cache && !self.queue.is_empty() {
            let block_size = self.config.block_size;
            let publishing = |handle: &&Handle| self.sequences[**handle].is_publishing_prompt(block_size);
            self.publishing.extend(self.running.iter().filter(publishing));
        }
    }

    fn find_deferral(&mut self, handle: Handle) -> Option<Deferral> {
        let block_size = self.config.block_size;
        if self.publishing.is_empty() {
            return None;
        }
        self.find(handle);
        let (found, sequence) = (self.found.len() as u32, &self.sequences[handle]);
        let limit = sequence.findable(block_size);
        let others = self.publishing.iter().filter(|first| self.sequences[**first].root == sequence.root);
        let deferral = |&first: &Handle| {
            let other = &self.sequences[first];
            let computed = &other.tokens[..other.prefill_end.0 as usize];
            let common = common_blocks(computed, &sequence.tokens, block_size);
            let same = computed.len() == sequence.tokens.len() && common.0 == computed.len() as u32 / block_size.0;
            let (until, worth) = (common.min(limit), if same { WORTH_WAITING_FOR_THE_SAME } else { WORTH_WAITING });
            (until.0 >= found + worth && other.published < until).then_some(Deferral { first, until })
        };
        others.filter_map(deferral).max_by_key(|deferral| (deferral.until, Reverse(deferral.first)))
    }
}

fn common_blocks(a: &[u32], b: &[u32], block_size: Tokens) -> Blocks {
    let size = block_size.0 as usize;
    let pairs = a.chunks_exact(size).zip(b.chunks_exact(size));
    Blocks(pairs.take_while(|(a, b)| a == b).count() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_blocks_are_whole_and_from_the_start() {
        assert_eq!(common_blocks(&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 6], Tokens(2)), Blocks(2));
        assert_eq!(common_blocks(&[1, 2, 3, 4], &[1, 2, 3], Tokens(2)), Blocks(1));
        assert_eq!(common_blocks(&[9, 2, 3, 4], &[1, 2, 3, 4], Tokens(2)), Blocks(0));
    }
}
