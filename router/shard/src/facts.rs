//! What a shard says of itself, and what is agreed with it before traffic.

use headrace_scheduler::{Blocks, Tokens};

/// Facts of the loaded model, the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardFacts {
    pub model_type: String,
    pub dtype: String,
    pub device: String,
    pub vocab_size: u32,
    pub max_positions: Tokens,
    pub block_size: Tokens,
    /// KV bytes of one token, all layers, one rank.
    pub kv_bytes_per_token: u64,
    pub ranks: u32,
    pub version: String,
}

/// What Warmup is asked to make room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmupLimits {
    pub max_batch_size: u32,
    pub max_batch_prefill_tokens: Tokens,
    /// `None`: as many as positions and pool allow.
    pub max_total_tokens: Option<Tokens>,
    /// `None`: what memory allows.
    pub blocks: Option<Blocks>,
}

/// What Warmup agreed: the smallest pool of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolReport {
    pub blocks: Blocks,
    pub pool_bytes: u64,
    pub available_bytes: u64,
    pub step_us: u64,
}
