//! The scheduler's knobs, checked before they get here.

use crate::units::{Blocks, TokenId, Tokens};

/// Fixed for a scheduler's life. `router/app` documents each with unit, default and trade-off as a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Tokens of one KV block.
    pub block_size: Tokens,
    /// Blocks of the pool, as the first Warmup agreed.
    pub total_blocks: Blocks,
    /// Rows of the running batch.
    pub max_batch_size: u32,
    /// Prompt tokens of one step (decode rows come on top).
    pub max_batch_prefill_tokens: Tokens,
    /// Prompt and generated tokens of one request; no more than the pool holds.
    pub max_total_tokens: Tokens,
    /// Requests running and waiting together; `None`: no limit.
    pub max_concurrent_requests: Option<u32>,
    /// Admission keeps this share of the pool free, in thousandths (30 = 3 %).
    pub watermark_permille: u32,
    /// While rows decode, waiting requests are admitted when there are at least this many thousandths of the running ones…
    pub waiting_served_ratio_permille: u32,
    /// …or this many decode steps have passed since the last admission. With both 0, at once.
    pub max_waiting_tokens: u32,
    /// Tokens that end an answer.
    pub eos: Vec<TokenId>,
    /// For tests: preempt every request once, at a token drawn from this seed and the request's id.
    pub preempt_once_seed: Option<u64>,
}
