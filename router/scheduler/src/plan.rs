//! What one step computes, and what came of it.
//!
//! A plan is complete: a shard that executes every plan of a session in order needs nothing else but the sampling
//! parameters, which the engine adds.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::units::{BlockId, Epoch, HostBlock, Micros, RequestId, Row, StepId, TokenId, Tokens};

/// One forward pass: prompt chunks and decode rows together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlan {
    pub step: StepId,
    /// Rows whose first chunk is in this step, in the order of their chunks.
    pub admitted: Vec<Admission>,
    /// How those came in.
    pub entrance: Entrance,
    /// Prompt chunks, at most one a row.
    pub chunks: Vec<Chunk>,
    /// Rows that compute the token they sampled last and sample the next one; a row is never both here and in `chunks`.
    pub decodes: Vec<Decode>,
    /// Blocks to copy to host memory, in this order, before anything else of the step: their rows lost them.
    pub swaps_out: Vec<SwapOut>,
    /// Host blocks to copy back, after that and before the forward pass.
    pub swaps_in: Vec<SwapIn>,
    /// Blocks to copy within the pool, after that and before the forward pass.
    pub copies: Vec<BlockCopy>,
    /// The block tables of all rows of the step, one after another; `Chunk::blocks` and `Decode::blocks` are ranges of it.
    pub blocks: Vec<BlockId>,
}

/// How a step's newcomers came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Entrance {
    /// Nobody came in, or nobody ran.
    #[default]
    Free,
    /// Beside others that ran: at once, or since enough waited.
    Joined,
    /// Beside others that decoded, whom the gate protects: since `Config::max_waiting_tokens` steps had passed.
    Overdue,
}

/// KV leaves the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapOut {
    pub block: BlockId,
    pub host: HostBlock,
}

/// KV comes back to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapIn {
    pub host: HostBlock,
    pub block: BlockId,
}

/// A row starts with what another wrote: copy on write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    pub from: BlockId,
    pub to: BlockId,
}

/// A request gets a row: everything the shard must know of its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    pub request: RequestId,
    pub row: Row,
    pub epoch: Epoch,
    /// Prompt and, after a preemption, the tokens generated so far; also those whose KV is cached already.
    pub tokens: Vec<TokenId>,
    /// How many of `tokens` were generated.
    pub generated: Tokens,
    /// How many of `tokens` have their KV in the row's blocks already; its first chunk starts here.
    pub computed: Tokens,
}

/// Part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub request: RequestId,
    pub row: Row,
    /// Position of the chunk's first token in its sequence.
    pub start: Tokens,
    /// At least one.
    pub tokens: Tokens,
    /// The chunk reaches the end of the row's known tokens, so the row samples.
    pub samples: bool,
    /// The row's block table: a range of `StepPlan::blocks`.
    pub blocks: Range<u32>,
}

/// A row that decodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decode {
    pub request: RequestId,
    pub row: Row,
    /// Position of the token it computes: how many tokens of the sequence are computed before this step.
    pub position: Tokens,
    /// The row's block table: a range of `StepPlan::blocks`.
    pub blocks: Range<u32>,
}

impl StepPlan {
    /// A plan in which nobody computes anything yet.
    pub fn new(step: StepId) -> Self {
        Self {
            step,
            admitted: Vec::new(),
            entrance: Entrance::Free,
            chunks: Vec::new(),
            decodes: Vec::new(),
            swaps_out: Vec::new(),
            swaps_in: Vec::new(),
            copies: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Rows that sample in this step, in the order of `StepOutcome::Done`'s samples: chunks that reach their row's
    /// end, then decodes.
    pub fn sampling_rows(&self) -> impl Iterator<Item = (RequestId, Row)> + '_ {
        let chunks = self.chunks.iter().filter(|chunk| chunk.samples).map(|chunk| (chunk.request, chunk.row));
        chunks.chain(self.decodes.iter().map(|decode| (decode.request, decode.row)))
    }

    /// Tokens the forward pass computes.
    pub fn tokens(&self) -> Tokens {
        let chunks: u32 = self.chunks.iter().map(|chunk| chunk.tokens.0).sum();
        Tokens(chunks + self.decodes.len() as u32)
    }
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// One sample per `StepPlan::sampling_rows`, in that order; `failed` names rows that failed alone, sampling or not;
    /// `took` is what the step cost the shard: forward pass and sampling, without waiting.
    Done { samples: Vec<Sample>, failed: Vec<Row>, took: Micros },
    /// The whole step failed: every request in it ends with `FinishReason::Failed`.
    Failed,
    /// The shard had no memory for it: every request in it is computed again, in smaller steps from now on. One that
    /// was alone with one token ends with `FinishReason::Failed`.
    OutOfMemory,
}

/// What one row sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    Token(TokenId),
    /// This row failed alone; its request ends with `FinishReason::Failed`.
    Failed,
}
