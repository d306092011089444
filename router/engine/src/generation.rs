//! One generation as its caller sees it: the request that goes in, the updates that come out.

use std::sync::Arc;
use std::time::Duration;

use compact_str::CompactString;
use headrace_scheduler::{CacheRoot, Micros, Priority, TokenId, Tokens};
use headrace_shard::Sampling;
use headrace_text::SpecialTokens;
use tokio::time::Instant;

use crate::progress::Progress;

/// A validated request for one answer.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// Prompt token ids; at least one.
    pub prompt: Vec<TokenId>,
    pub max_new_tokens: Tokens,
    pub ignore_eos: bool,
    /// Texts that end the answer wherever they occur in it, also across tokens.
    pub stop: Vec<String>,
    /// What happens to a stop string at the end of the answer.
    pub stop_text: StopText,
    /// Whether the texts of the tokens show special ones; the answer's text never does.
    pub special_tokens: SpecialTokens,
    pub sampling: Sampling,
    pub terms: Terms,
    pub observed: Observed,
}

/// What is measured of a request besides what its `Finished` says. Changes nothing of its answer.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// When the client's request was there: TTFT counts from then. `None`: from its submission.
    pub arrived: Option<Instant>,
    /// Where its caller wants to see how far it has come.
    pub progress: Option<Arc<Progress>>,
}

/// Whose a request is, how urgent, and what it shares: what its place among the others depends on.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The tenant's name, as short as the caller keeps names; `None`: the default tenant. Beyond 1,024 tenants with
    /// requests, further ones count as one.
    pub tenant: Option<Box<str>>,
    pub priority: Priority,
    /// When an answer is of no use any more: the request is refused if it is predicted to begin later, and dropped if it
    /// still waits for its first step then.
    pub deadline: Option<Instant>,
    /// What its KV depends on besides its tokens: requests share cached prefixes only where all of it is equal.
    pub cache_root: CacheRoot,
}

/// Native routes show the stop string and hold nothing back; OpenAI's strip it and hold back what may become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopText {
    Keep,
    Strip,
}

/// What a generation's stream yields, in this order: at most one `Prompt`, `Token`s, one `Finished`.
#[derive(Clone, Debug)]
pub enum Update {
    /// Log-probabilities of the prompt's tokens, as many as the prompt has; the first is NaN. Only when asked for.
    Prompt(Vec<f32>),
    Token(GeneratedToken),
    Finished(Finished),
    /// The generation ended without an answer; nothing follows.
    Failed(GenerationError),
}

#[derive(Clone, Debug)]
pub struct GeneratedToken {
    pub id: TokenId,
    /// What this token adds to the text, special tokens as the request says; empty while a character is incomplete or
    /// text is held back. Up to 24 bytes of it need no allocation.
    pub text: CompactString,
    /// Only when asked for.
    pub logprob: Option<f32>,
    pub special: bool,
    /// Most likely tokens first; only when asked for.
    pub top: Vec<TopToken>,
}

#[derive(Clone, Debug)]
pub struct TopToken {
    pub id: TokenId,
    pub text: String,
    pub logprob: f32,
    pub special: bool,
}

#[derive(Clone, Debug)]
pub struct Finished {
    pub reason: FinishReason,
    /// The whole answer, special tokens left out, cut after (or, with `StopText::Strip`, before) the stop string.
    pub text: String,
    pub generated: Tokens,
    /// Prompt tokens whose KV was in the prefix cache when it first got a row.
    pub cached: Tokens,
    pub timings: Timings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    Length,
    EndOfSequence,
    StopString,
}

/// Where a request's time went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// From submission to the first step that holds it.
    pub queue: Duration,
    /// From then to the last token.
    pub inference: Duration,
    /// From submission to the first token.
    pub first_token: Duration,
}

/// Why there is no answer. `router/http` maps each to a status and TGI's error_type, in one file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GenerationError {
    #[error("{0}")]
    Rejected(headrace_scheduler::Rejected),
    /// The server drains: it finishes what runs and takes nothing new.
    #[error("the server is shutting down; send the request to another replica")]
    ShuttingDown,
    /// The server ended while the request ran or waited.
    #[error("the server shut down before the answer was finished; send the request to another replica")]
    CutOff,
    /// It waited for its first step until its deadline.
    #[error(
        "the request was still waiting when its deadline passed; allow more time, or send it when there is less to do"
    )]
    DeadlineMissed {
        /// When the queue is predicted to be drained.
        retry_after: Micros,
    },
    /// It still ran, or waited, when its time was over.
    #[error("the answer was not finished within {limit:?}")]
    TimedOut { limit: Duration },
    /// The step or the row failed on the shard.
    #[error("{0}")]
    Shard(String),
    /// The reader left more than the stream's buffer unread.
    #[error(
        "the client read too slowly: {unread} updates were waiting; read the stream faster or ask for fewer tokens"
    )]
    SlowReader { unread: usize },
    /// The shard died, and with it all that ran.
    #[error(
        "the shard died: {0}; the request cannot be answered here: send it to another replica, or again when the server \
         is back"
    )]
    ShardDied(String),
}
