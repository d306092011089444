//! The scheduler's knobs, checked before they get here.

use serde::{Deserialize, Serialize};

use crate::units::{Blocks, Micros, TokenId, Tokens};

/// Fixed for a scheduler's life. `router/app` documents each with unit, default and trade-off as a flag;
/// docs/scheduler.md says when to turn it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Tokens of one KV block.
    pub block_size: Tokens,
    /// Blocks of the pool, as the first Warmup agreed.
    pub total_blocks: Blocks,
    /// Blocks of host memory that the shard offers for swapping; 0: it does not swap.
    pub host_blocks: Blocks,
    /// What copying one block to or from host memory costs. A victim is swapped when both copies of all its blocks cost
    /// less than computing it again.
    pub swap_time: Micros,
    /// Rows of the running batch.
    pub max_batch_size: u32,
    /// Prompt tokens of one step (decode rows come on top).
    pub max_batch_prefill_tokens: Tokens,
    /// Prompt and generated tokens of one request; no more than the pool holds.
    pub max_total_tokens: Tokens,
    /// Who is next among those that wait.
    pub policy: PolicyKind,
    /// Keep computed blocks after their request ended, and start requests with the same beginning from them.
    pub prefix_cache: bool,
    /// Cut long prompts, and compute chunks beside decode rows. Without it a prompt is one chunk in a step of its own,
    /// which pauses those who decode (as TGI without chunking); only a prompt beyond the budget is still cut.
    pub chunked_prefill: bool,
    /// Chunks are cut so that a step with decode rows is predicted to take no longer than this.
    pub target_itl: Option<Micros>,
    /// Requests running and waiting together; `None`: no limit.
    pub max_concurrent_requests: Option<u32>,
    /// Tokens that waiting requests have to compute before their next one, all together; `None`: no limit.
    pub max_queue_tokens: Option<u64>,
    /// What must fit before a request enters.
    pub admission: AdmissionRule,
    /// Admission keeps this share of the pool free, in thousandths (30 = 3 %).
    pub watermark_permille: u32,
    /// How many requests may overtake one that waits for blocks, before nobody enters until it fits.
    pub max_skips: u32,
    /// While rows decode, waiting requests are admitted when there are at least this many thousandths of the running ones…
    pub waiting_served_ratio_permille: u32,
    /// …or this many decode steps have passed since the last admission. With both 0, at once.
    pub max_waiting_tokens: u32,
    /// Tokens that end an answer.
    pub eos: Vec<TokenId>,
    /// For tests: preempt every request once, at a token drawn from this seed and the request's id.
    pub preempt_once_seed: Option<u64>,
}

impl Default for Config {
    /// What `headrace serve` uses on a CPU, but for what a model says: 1,024 blocks of 32 tokens, requests as long as
    /// the pool, no end-of-sequence.
    fn default() -> Self {
        Self {
            block_size: Tokens(32),
            total_blocks: Blocks(1024),
            host_blocks: Blocks::ZERO,
            swap_time: Micros::ZERO,
            max_batch_size: 256,
            max_batch_prefill_tokens: Tokens(512),
            max_total_tokens: Tokens(32 * 1024),
            policy: PolicyKind::Fcfs,
            prefix_cache: true,
            chunked_prefill: true,
            target_itl: None,
            max_concurrent_requests: None,
            max_queue_tokens: None,
            admission: AdmissionRule::Learned,
            watermark_permille: 30,
            max_skips: 8,
            waiting_served_ratio_permille: 0,
            max_waiting_tokens: 0,
            eos: Vec::new(),
            preempt_once_seed: None,
        }
    }
}

/// Who is next among those that wait. One file each in `policy/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyKind {
    /// First come, first served.
    Fcfs,
    /// Bands of priority, aged so that none starves.
    Priority,
    /// Each tenant its share of the computed tokens.
    Fair,
    /// The shortest prompt first, aged by work done since arrival.
    Shortest,
    /// For comparison: a group starts when the last one has wholly ended, and the rows of those that end early idle.
    Static {
        /// Requests of a group; no more than rows.
        group_size: u32,
    },
    /// For comparison: request-level batching. Requests are collected for a window, then run to completion.
    Dynamic {
        /// From the arrival of the first that waits to the start of the batch, unless it is full before.
        window: Micros,
    },
}

impl Config {
    /// Tokens of the largest step: prompt tokens, and decode rows beside them.
    pub(crate) fn most_step_tokens(&self) -> Tokens {
        Tokens(self.max_batch_prefill_tokens.0.saturating_add(self.max_batch_size))
    }
}

impl PolicyKind {
    /// As `--scheduling-policy` says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Priority => "priority",
            Self::Fair => "fair",
            Self::Shortest => "shortest",
            Self::Static { .. } => "static",
            Self::Dynamic { .. } => "dynamic",
        }
    }
}

/// What must fit before a request enters. All but the first are for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmissionRule {
    /// Its prompt, a watermark, and the most that all are expected to hold at a time, by what was learnt of lengths.
    Learned,
    /// Its prompt and a watermark: growth is left to preemption.
    Watermark,
    /// Its prompt and max_new_tokens, and those of all who run, as TGI reserves them.
    Reserve,
}
