//! What an operator may want to see of a scheduler at one moment.

use serde::{Deserialize, Serialize};

use crate::event::FinishReason;
use crate::units::{Blocks, Tokens};

/// A snapshot. Gauges first, then counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests without a row that still have tokens to compute.
    pub waiting: u32,
    /// Requests that hold a row: `prefilling + decoding`.
    pub running: u32,
    /// Running requests whose prompt is not wholly planned yet.
    pub prefilling: u32,
    /// Running requests that compute one token a step.
    pub decoding: u32,
    /// Requests that gave their row away and wait only for the last sample, which is in flight.
    pub ending: u32,
    /// Tokens that must be computed before every waiting request has its next token.
    pub queued_tokens: u64,
    pub blocks: BlockStats,
    /// Steps planned whose outcome is not known.
    pub steps_in_flight: u32,
    /// Steps planned.
    pub steps: u64,
    /// Requests put back to wait because blocks ran out (or for a test); losses of a session do not count.
    pub preemptions: u64,
    /// Prompt and answer tokens computed again after a preemption or a lost session.
    pub recomputed_tokens: u64,
    /// Blocks copied to host memory since the start.
    pub swapped_blocks: u64,
    /// Blocks of host memory that hold a waiting request's KV.
    pub host_blocks_used: Blocks,
    pub prefix: PrefixStats,
    pub finished: FinishCounts,
}

/// The prefix cache since the start. The hit rate is `hit_tokens ÷ looked_up_tokens`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixStats {
    /// Tokens of admitted requests that asked the cache.
    pub looked_up_tokens: u64,
    /// Those of them whose KV was there.
    pub hit_tokens: u64,
    /// Blocks taken from the cache because the pool was short.
    pub evicted_blocks: u64,
}

/// Where the pool's blocks are: `free + cached + held = total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockStats {
    pub free: Blocks,
    /// Held by nobody and kept for the next request that begins like them; free when the pool is short.
    pub cached: Blocks,
    /// Held by a sequence or by a step in flight.
    pub held: Blocks,
    pub total: Blocks,
    /// Those of `held` that no sequence needs any more: free when the step in flight lands.
    pub leaving: Blocks,
}

/// Requests that ended, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishCounts {
    pub length: u64,
    pub end_of_sequence: u64,
    pub stop_string: u64,
    pub cancelled: u64,
    pub failed: u64,
    pub deadline_missed: u64,
    pub displaced: u64,
}

impl FinishCounts {
    pub(crate) fn count(&mut self, reason: FinishReason) {
        *match reason {
            FinishReason::Length => &mut self.length,
            FinishReason::EndOfSequence => &mut self.end_of_sequence,
            FinishReason::StopString => &mut self.stop_string,
            FinishReason::Cancelled => &mut self.cancelled,
            FinishReason::Failed => &mut self.failed,
            FinishReason::DeadlineMissed => &mut self.deadline_missed,
            FinishReason::Displaced => &mut self.displaced,
        } += 1;
    }

    /// Requests that ended, whatever the reason.
    pub fn total(&self) -> u64 {
        let answered = self.length + self.end_of_sequence + self.stop_string;
        answered + self.cancelled + self.failed + self.deadline_missed + self.displaced
    }
}

/// The part of `Stats` that only grows.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub preemptions: u64,
    pub recomputed_tokens: u64,
    pub swapped_blocks: u64,
    pub prefix: PrefixStats,
    pub finished: FinishCounts,
}

impl Counters {
    /// A request with this many tokens asked the cache, which had so many of them.
    pub fn looked_up(&mut self, tokens: Tokens, hit: Tokens) {
        self.prefix.looked_up_tokens += u64::from(tokens.0);
        self.prefix.hit_tokens += u64::from(hit.0);
    }

    pub fn recomputed(&mut self, tokens: Tokens) {
        self.recomputed_tokens += u64::from(tokens.0);
    }
}
