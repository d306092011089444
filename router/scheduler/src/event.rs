//! What the scheduler tells its owner after a command.

use serde::{Deserialize, Serialize};

use crate::units::{RequestId, TokenId, Tokens};

/// Something happened to a request. Events of one request come in order; the last one is `Finished`, exactly once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The answer's next token.
    Token {
        request: RequestId,
        token: TokenId,
        /// Its place in the answer, from 0.
        index: u32,
        /// Its place in the samples of the outcome that brought it.
        sample: u32,
    },
    /// The request lost its row and blocks and waits again; its answer goes on later, no token twice.
    Preempted { request: RequestId },
    Finished {
        request: RequestId,
        reason: FinishReason,
        /// Tokens of the answer.
        generated: Tokens,
    },
}

/// Why a request ended. When several hold for one token: stop string, end-of-sequence, length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    Length,
    EndOfSequence,
    /// The owner of the text found a stop string (`Scheduler::stop`).
    StopString,
    Cancelled,
    /// The step or the row failed on the shard.
    Failed,
    /// Its deadline passed before its first step.
    DeadlineMissed,
    /// Another tenant's request took its place in a full queue before its first step.
    Displaced,
}
