//! One request on its way: its tokens, what is computed of them, and where it is.
//!
//! Positions count tokens *planned*, not tokens landed: a plan is made while up to one earlier step is in flight, so a
//! sequence may end in a token that exists on the shard but is not known here yet ('unknown').

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host_pool::Swapped;
use crate::request::{CacheRoot, Priority, Request, Tenant};
use crate::rows::Seat;
use crate::units::{BlockId, Blocks, Micros, RequestId, StepId, TokenId, Tokens};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Sequence {
    /// Prompt, then the answer's tokens known so far.
    pub tokens: Vec<TokenId>,
    prompt: Tokens,
    pub max_new: Tokens,
    pub ignore_eos: bool,
    pub tenant: Tenant,
    pub priority: Priority,
    pub deadline: Option<Micros>,
    pub root: CacheRoot,
    pub reads_cache: bool,
    pub fork_of: Option<RequestId>,
    pub arrived: Micros,
    pub place: Place,
    /// Block table; empty unless running.
    pub blocks: Vec<BlockId>,
    /// The beginning of `blocks` that the prefix tree names.
    pub published: Blocks,
    /// The beginning of `blocks` that was found in the cache when the row was taken.
    pub shared: Blocks,
    /// `blocks` and `published` as they were given up, while the last step that computes them is in flight: what it
    /// computes is published when it lands, though the row is somebody else's by then.
    pub left_behind: Option<(Vec<BlockId>, Blocks)>,
    /// Its KV in host memory, while it waits after a preemption.
    pub swapped: Option<Swapped>,
    /// Buckets of lengths that the answer is known to be beyond.
    pub passed: u8,
    /// Positions whose KV is computed once the steps in flight have landed.
    pub computed: Tokens,
    /// The row prefills up to here and decodes from here on: all tokens known at admission.
    pub prefill_end: Tokens,
    /// Samples in flight.
    pub unknown: u32,
    /// The last step planned that holds this sequence; 0 before the first.
    pub last_step: StepId,
    /// Positions below this were computed before, in a row that was lost.
    pub computed_before: Tokens,
    /// How often this sequence was the victim when blocks or rows ran out.
    pub preemptions: u32,
    /// Before so many tokens of the answer are sampled, no policy takes the row.
    pub spared_until: Tokens,
    /// How many requests had ended when it was a victim last.
    pub victim_at: u64,
    /// For tests: preempt when this many tokens of the answer are sampled.
    pub preempt_at: Option<Tokens>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// In the queue; holds no row and no blocks.
    Waiting,
    Running(Seat),
    /// Its last sample is in flight. Row and blocks are given up already.
    Ending,
}

impl Sequence {
    pub fn new(request: Request, arrived: Micros, preempt_at: Option<Tokens>) -> Self {
        Self {
            prompt: Tokens(request.prompt.len() as u32),
            tokens: request.prompt,
            max_new: request.max_new_tokens,
            ignore_eos: request.ignore_eos,
            tenant: request.tenant,
            priority: request.priority,
            deadline: request.deadline,
            root: request.root,
            reads_cache: request.reads_cache,
            fork_of: request.fork_of,
            arrived,
            place: Place::Waiting,
            blocks: Vec::new(),
            published: Blocks::ZERO,
            shared: Blocks::ZERO,
            left_behind: None,
            swapped: None,
            passed: 0,
            computed: Tokens::ZERO,
            prefill_end: Tokens::ZERO,
            unknown: 0,
            last_step: StepId(0),
            computed_before: Tokens::ZERO,
            preemptions: 0,
            spared_until: Tokens::ZERO,
            victim_at: 0,
            preempt_at,
        }
    }

    /// Prompt and known answer.
    pub fn known(&self) -> Tokens {
        Tokens(self.tokens.len() as u32)
    }

    /// Known tokens of the answer.
    pub fn generated(&self) -> Tokens {
        self.known() - self.prompt
    }

    /// Tokens of the answer, those in flight included.
    pub fn sampled(&self) -> Tokens {
        self.generated() + Tokens(self.unknown)
    }

    /// The answer has its full length when the samples in flight have landed: nothing more may be planned.
    pub fn ends_by_length(&self) -> bool {
        self.sampled() >= self.max_new
    }

    /// The answer has its full length.
    pub fn is_full(&self) -> bool {
        self.generated() >= self.max_new
    }

    pub fn is_prefilling(&self) -> bool {
        self.computed < self.prefill_end
    }

    /// What its last chunk sampled, in the row that it holds, has landed: so the KV of all before it is there.
    pub fn has_prefilled(&self) -> bool {
        self.known() > self.prefill_end
    }

    /// Tokens of the prefill that are not planned yet.
    pub fn to_prefill(&self) -> Tokens {
        self.prefill_end - self.computed
    }

    pub fn is_running(&self) -> bool {
        matches!(self.place, Place::Running(_))
    }

    /// Runs, and blocks of what it prefills are still to be published.
    pub fn is_publishing_prompt(&self, block_size: Tokens) -> bool {
        self.is_running() && self.published.0 < self.prefill_end.0 / block_size.0
    }

    /// Blocks of the table that were not found in the cache: most likely nobody else holds them.
    pub fn own_blocks(&self) -> Blocks {
        Blocks(self.blocks.len() as u32) - self.shared
    }

    /// Blocks that the rest of the prefill will take.
    pub fn blocks_to_come(&self, block_size: Tokens) -> Blocks {
        self.prefill_end.blocks(block_size).saturating_sub(Blocks(self.blocks.len() as u32))
    }

    /// Blocks of a prompt and an answer of full length.
    pub fn most_blocks(&self, block_size: Tokens) -> Blocks {
        (self.prompt + self.max_new).blocks(block_size)
    }

    /// `own_blocks`, once the rest of the prompt has its blocks too.
    pub fn own_blocks_to_be(&self, block_size: Tokens) -> Blocks {
        self.own_blocks() + self.blocks_to_come(block_size)
    }

    /// The next position lies beyond the block table.
    pub fn needs_block(&self, block_size: Tokens) -> bool {
        self.computed.0 >= self.blocks.len() as u32 * block_size.0
    }

    /// Takes a row to compute everything known; the KV of the beginning is in the blocks `found`.
    pub fn sit_down(&mut self, seat: Seat, found: &[BlockId], block_size: Tokens) {
        self.place = Place::Running(seat);
        self.blocks.extend_from_slice(found);
        self.shared = Blocks(found.len() as u32);
        self.published = self.shared;
        self.computed = Tokens(self.shared.0 * block_size.0);
        self.prefill_end = self.known();
    }

    /// Of one that just sat down: tokens to compute again, or copied to host memory, since its last row was lost.
    pub fn lost(&self) -> Tokens {
        let to_compute = self.computed_before.saturating_sub(self.computed);
        self.swapped.as_ref().map_or(to_compute, |swapped| swapped.tokens)
    }

    /// Tokens whose KV needs not be computed, when so many blocks of them are found in the cache.
    pub fn at_hand(&self, found: Blocks, block_size: Tokens) -> Tokens {
        let swapped = self.swapped.as_ref().map_or(Tokens::ZERO, |swapped| swapped.tokens);
        Tokens(found.0 * block_size.0).max(swapped)
    }

    /// Never had a row.
    pub fn never_ran(&self) -> bool {
        self.last_step == StepId(0)
    }

    /// Most blocks that a lookup may find: the last token is computed whatever is cached, for its logits.
    pub fn findable(&self, block_size: Tokens) -> Blocks {
        if self.reads_cache { Blocks((self.known().0 - 1) / block_size.0) } else { Blocks::ZERO }
    }

    /// Row and blocks are gone: what was computed must be computed again, or found in the cache.
    pub fn wait_again(&mut self) {
        self.place = Place::Waiting;
        self.left_behind = None;
        self.blocks.clear();
        self.published = Blocks::ZERO;
        self.shared = Blocks::ZERO;
        self.computed_before = self.computed_before.max(self.computed);
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Waiting => write!(f, "waiting")?,
            Place::Ending => write!(f, "ending")?,
            Place::Running(seat) if self.is_prefilling() => {
                write!(f, "row {} epoch {} prefill {}/{}", seat.row, seat.epoch, self.computed, self.prefill_end)?;
            }
            Place::Running(seat) => write!(f, "row {} epoch {} decode", seat.row, seat.epoch)?,
        }
        let (prompt, generated, unknown) = (self.prompt, self.generated(), self.unknown);
        write!(f, ", {prompt} + {generated} tokens (+{unknown} unknown, at most {})", self.max_new)?;
        write!(f, ", {} blocks, preempted {} times", self.blocks.len(), self.preemptions)
    }
}
