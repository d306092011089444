//! What a shard says of itself, and what is agreed with it before traffic.

use std::fmt::Display;

use headrace_scheduler::{Blocks, Micros, Tokens};

use crate::error::ShardError;
use crate::proto::InfoResponse;

/// Facts of the loaded model. Ranks agree on all but `device` and `tokenizer` (rank 0's) and `kv_bytes_per_token`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardFacts {
    pub model_type: String,
    pub dtype: String,
    pub device: String,
    pub vocab_size: u32,
    pub max_positions: Tokens,
    pub block_size: Tokens,
    /// KV bytes of one token, all layers, on the rank that holds most.
    pub kv_bytes_per_token: u64,
    pub ranks: u32,
    /// SHA-256 of the tokenizer.json beside the weights, hexadecimal; `None` where there is no such file.
    pub tokenizer: Option<String>,
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
    /// Host memory of each rank for KV that is swapped out.
    pub host_bytes: u64,
}

/// What Warmup agreed: the smallest pool of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolReport {
    pub blocks: Blocks,
    pub pool_bytes: u64,
    pub available_bytes: u64,
    pub step_us: u64,
    /// Blocks of host memory; 0: nothing can be swapped.
    pub host_blocks: Blocks,
    /// Of one block, in or out.
    pub swap_time: Micros,
}

/// What the ranks, in their order, say of themselves as one statement.
///
/// # Errors
/// `Protocol` with the rank and both values when one holds another model.
pub(crate) fn agreed(infos: &[InfoResponse]) -> Result<ShardFacts, ShardError> {
    let first = &infos[0];
    let ranks = infos.len() as u32;
    for (rank, info) in (0..).zip(infos) {
        same(rank, "model_type", &info.model_type, &first.model_type, RANK_0)?;
        same(rank, "dtype", &info.dtype, &first.dtype, RANK_0)?;
        same(rank, "block_size", info.block_size, first.block_size, RANK_0)?;
        same(rank, "vocab_size", info.vocab_size, first.vocab_size, RANK_0)?;
        same(rank, "max_positions", info.max_positions, first.max_positions, RANK_0)?;
        same(rank, "version", &info.version, &first.version, RANK_0)?;
        not_zero(rank, "block_size", info.block_size)?;
        not_zero(rank, "vocab_size", info.vocab_size)?;
        not_zero(rank, "max_positions", info.max_positions)?;
    }
    Ok(ShardFacts {
        model_type: first.model_type.clone(),
        dtype: first.dtype.clone(),
        device: first.device.clone(),
        vocab_size: first.vocab_size,
        max_positions: Tokens(first.max_positions),
        block_size: Tokens(first.block_size),
        kv_bytes_per_token: infos.iter().map(|info| info.kv_bytes_per_token).max().unwrap_or(0),
        ranks,
        tokenizer: Some(first.tokenizer_sha256.clone()).filter(|digest| !digest.is_empty()),
        version: first.version.clone(),
    })
}

const RANK_0: &str = "rank 0's is";

fn same<T: PartialEq + Display>(rank: u32, field: &str, value: T, wanted: T, whose: &str) -> Result<(), ShardError> {
    if value == wanted {
        return Ok(());
    }
    Err(ShardError::Protocol { rank, reason: format!("its {field} is {value}, but {whose} {wanted}") })
}

fn not_zero(rank: u32, field: &str, value: u32) -> Result<(), ShardError> {
    match value {
        0 => Err(ShardError::Protocol { rank, reason: format!("its {field} is 0") }),
        _ => Ok(()),
    }
}
