//! One request on its way: its tokens, what is computed of them, and where it is.
//!
//! Positions count tokens *planned*, not tokens landed: a plan is made while up to one earlier step is in flight, so a
//! sequence may end in a token that exists on the shard but is not known here yet ('unknown').

use std::fmt;

use crate::request::Request;
use crate::rows::Seat;
use crate::units::{BlockId, StepId, TokenId, Tokens};

pub(crate) struct Sequence {
    /// Prompt, then the answer's tokens known so far.
    pub tokens: Vec<TokenId>,
    prompt: Tokens,
    max_new: Tokens,
    pub ignore_eos: bool,
    pub place: Place,
    /// Block table; empty unless running.
    pub blocks: Vec<BlockId>,
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
    /// How often this sequence was the victim when blocks ran out.
    pub preemptions: u32,
    /// For tests: preempt when this many tokens of the answer are sampled.
    pub preempt_at: Option<Tokens>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the queue; holds no row and no blocks.
    Waiting,
    Running(Seat),
    /// Its last sample is in flight. Row and blocks are given up already.
    Ending,
}

impl Sequence {
    pub fn new(request: Request, preempt_at: Option<Tokens>) -> Self {
        Self {
            prompt: Tokens(request.prompt.len() as u32),
            tokens: request.prompt,
            max_new: request.max_new_tokens,
            ignore_eos: request.ignore_eos,
            place: Place::Waiting,
            blocks: Vec::new(),
            computed: Tokens::ZERO,
            prefill_end: Tokens::ZERO,
            unknown: 0,
            last_step: StepId(0),
            computed_before: Tokens::ZERO,
            preemptions: 0,
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

    /// Tokens of the prefill that are not planned yet.
    pub fn to_prefill(&self) -> Tokens {
        self.prefill_end - self.computed
    }

    /// The next position lies beyond the block table.
    pub fn needs_block(&self, block_size: Tokens) -> bool {
        self.computed.0 >= self.blocks.len() as u32 * block_size.0
    }

    /// Takes a row to compute everything known, from the start.
    pub fn sit_down(&mut self, seat: Seat) {
        self.place = Place::Running(seat);
        self.computed = Tokens::ZERO;
        self.prefill_end = self.known();
    }

    /// Row and blocks are gone: what was computed must be computed again.
    pub fn wait_again(&mut self) {
        self.place = Place::Waiting;
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
