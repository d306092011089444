//! What a caller asks of the scheduler, and why it may be refused.

use serde::{Deserialize, Serialize};

use crate::units::{Micros, RequestId, TokenId, Tokens};

/// A request as the scheduler sees it: ids and limits, never text or sampling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Prompt token ids; at least one.
    pub prompt: Vec<TokenId>,
    /// The answer ends with reason `Length` at this many tokens; at least one.
    pub max_new_tokens: Tokens,
    /// Go on past end-of-sequence tokens (for benchmarks).
    pub ignore_eos: bool,
    /// Whose it is; `fair` shares by it, and lengths are learned by it.
    pub tenant: Tenant,
    /// How urgent it is; `priority` orders by it, and victims are chosen by it under every policy.
    pub priority: Priority,
    /// When an answer is of no use any more: it is refused if it is predicted to begin later, and dropped if it still
    /// waits for its first step then.
    pub deadline: Option<Micros>,
    /// What its KV depends on besides its tokens.
    pub root: CacheRoot,
    /// May start from cached blocks. Not for a request that wants something of every prompt position.
    pub reads_cache: bool,
    /// An earlier request with the very same prompt, another choice of one question: this one may start from a copy of
    /// what that one computed. The caller vouches for the prompt.
    pub fork_of: Option<RequestId>,
}

impl Request {
    /// An ordinary request: no tenant, no priority, no deadline.
    pub fn new(prompt: Vec<TokenId>, max_new_tokens: Tokens) -> Self {
        Self {
            prompt,
            max_new_tokens,
            ignore_eos: false,
            tenant: Tenant(0),
            priority: Priority::NORMAL,
            deadline: None,
            root: CacheRoot::default(),
            reads_cache: true,
            fork_of: None,
        }
    }
}

/// A tenant's number. Whoever owns the scheduler maps names to numbers and keeps them few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tenant(pub u32);

/// A band of urgency, −100 … 100; larger is more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Priority(i8);

impl Priority {
    /// Work that may fill whatever the others leave: always the first victim.
    pub const BATCH: Self = Self(-100);
    pub const NORMAL: Self = Self(0);
    pub const HIGHEST: Self = Self(100);

    /// `None`: outside −100 … 100.
    pub fn new(band: i64) -> Option<Self> {
        i8::try_from(band).ok().filter(|band| (-100..=100).contains(band)).map(Self)
    }

    pub fn band(self) -> i8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}

/// What the KV of a prefix depends on besides its tokens. Blocks are shared only where all of it is equal: fields, not
/// one hash of them, so that no two of them can be taken for each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CacheRoot {
    /// A low-rank adapter's number.
    pub adapter: Option<u32>,
    /// A caller's own separation: requests with different salts never share.
    pub salt: Option<Box<str>>,
    /// Digests of the images among the tokens, in order.
    pub images: Vec<u128>,
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
    #[error(transparent)]
    Overloaded(Overload),
}

/// Not now: come again in `retry_after`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}; try again in {} s", retry_after.whole_seconds())]
pub struct Overload {
    pub cause: OverloadCause,
    /// When the queue is predicted to be drained.
    pub retry_after: Micros,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverloadCause {
    #[error("{limit} requests are running or waiting already, which is --max-concurrent-requests")]
    Requests { limit: u32 },
    #[error("{queued} tokens wait to be computed and this request has {tokens}; --max-queue-tokens is {limit}")]
    QueueTokens { queued: u64, tokens: Tokens, limit: u64 },
    #[error("its first token is predicted in {} ms, after its deadline in {} ms", predicted.0 / 1000, left.0 / 1000)]
    Deadline { predicted: Micros, left: Micros },
    /// `fair` only: it was the newest of the most loaded tenant when another, below its share, found the queue full.
    #[error("the queue is full and another tenant below its share took this request's place")]
    Displaced,
}
