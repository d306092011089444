//! What a caller asks of the scheduler, and why it may be refused.

use crate::units::{TokenId, Tokens};

/// A request as the scheduler sees it: ids and limits, never text or sampling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Prompt token ids; at least one.
    pub prompt: Vec<TokenId>,
    /// The answer ends with reason `Length` at this many tokens; at least one.
    pub max_new_tokens: Tokens,
    /// Go on past end-of-sequence tokens (for benchmarks).
    pub ignore_eos: bool,
}

/// The request was not taken; nothing was remembered of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("the prompt is empty; send at least one token")]
    EmptyPrompt,
    #[error("max_new_tokens is 0; ask for at least one token")]
    NothingToGenerate,
    /// The request could never finish here, however long it waited.
    #[error(
        "{prompt} prompt tokens + {max_new} new tokens exceed the limit of {limit} tokens a request; \
         shorten the prompt, ask for fewer tokens or raise --max-total-tokens"
    )]
    TooLong { prompt: Tokens, max_new: Tokens, limit: Tokens },
    #[error("{limit} requests are running or waiting already; try again later or raise --max-concurrent-requests")]
    Overloaded { limit: u32 },
}
