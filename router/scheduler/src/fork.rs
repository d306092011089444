//! Copy on write: another choice of a question starts from what the first one computed.
//!
//! Whole blocks of a prompt are shared through the prefix cache. The block in which the prompt ends is not: each choice
//! writes its own answer behind it. So a choice that enters while the first one runs takes a copy of that block, and
//! computes the prompt's last token only, for its logits.
//!
//! A copy is planned with the step that admits the choice, and runs before the step's forward pass. What it reads was
//! computed by a step that has landed, and nothing that a later step writes: the block stays the first one's at least
//! until this plan is made, and steps run in order.

use crate::plan::{BlockCopy, StepPlan};
use crate::scheduler::Scheduler;
use crate::sequence::Sequence;
use crate::sequences::Handle;
use crate::units::{BlockId, Blocks, Tokens};

/// A choice waits for the first one's first token only if it saves at least this many tokens: less is computed sooner
/// than waited for.
const WORTH_WAITING: Tokens = Tokens(8);

impl Scheduler {
    /// The first choice of this question computes, right now, the prompt of both.
    pub(crate) fn waits_for_fork(&self, handle: Handle) -> bool {
        let sequence = &self.sequences[handle];
        let first = self.first_choice(sequence);
        sequence.known() > WORTH_WAITING && first.is_some_and(|first| first.is_running() && !first.has_prefilled())
    }

    /// The request has a row, and what the cache had of it. Plans the copy of the block in which its prompt ends.
    pub(crate) fn fork(&mut self, handle: Handle, plan: &mut StepPlan) {
        let Some(from) = self.block_to_copy(handle) else { return };
        // It was admitted with room for all it knows, so there is a block for it.
        let Some(to) = self.kv.take() else { return };
        let sequence = &mut self.sequences[handle];
        sequence.blocks.push(to);
        sequence.computed = sequence.known() - Tokens(1);
        plan.copies.push(BlockCopy { from, to });
        if let Some(forecast) = &mut self.forecast {
            forecast.held += Blocks(1);
        }
    }

    /// The first choice's block in which the prompt ends, if more than the prompt's last token is in it, and all blocks
    /// before it were found.
    fn block_to_copy(&self, handle: Handle) -> Option<BlockId> {
        let (sequence, block_size) = (&self.sequences[handle], self.config.block_size);
        let whole = sequence.findable(block_size);
        let copied = sequence.known().0 - 1 - whole.0 * block_size.0;
        if copied == 0 || sequence.blocks.len() as u32 != whole.0 {
            return None;
        }
        let first = self.first_choice(sequence)?;
        first.blocks.get(whole.0 as usize).copied().filter(|_| first.is_running() && first.has_prefilled())
    }

    /// Of a choice that has nothing of its own yet.
    fn first_choice(&self, sequence: &Sequence) -> Option<&Sequence> {
        if !self.config.prefix_cache || !sequence.reads_cache || sequence.generated() > Tokens::ZERO {
            return None;
        }
        let first = self.sequences.get(self.sequences.find(sequence.fork_of?)?)?;
        let same = first.known() - first.generated() == sequence.known() && first.root == sequence.root;
        same.then_some(first)
    }
}
