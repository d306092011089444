//! Why a logical shard could not do what was asked.

use std::time::Duration;

/// What a rank did names the rank: 'rank 1' is what an operator can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    #[error("cannot reach rank {rank} at {address}: {reason}")]
    Unreachable { rank: u32, address: String, reason: String },
    #[error("rank {rank} did not answer {call} within {limit:?}")]
    Timeout { rank: u32, call: &'static str, limit: Duration },
    /// A step took longer than it may. `ranks`: those that hold it up, as far as is known. `silent`: they say nothing
    /// else either.
    #[error("{} did not answer a step within {limit:?} (--step-timeout){}", names(ranks), if *silent { ", nor whether it is alive" } else { "" })]
    Hung { ranks: Vec<u32>, silent: bool, limit: Duration },
    /// The process, or the way to it, ended in the middle of a session: all KV is gone.
    #[error("rank {rank} is gone")]
    Gone { rank: u32 },
    /// The addresses are not those of all ranks, each once and in their order.
    #[error("--shards must name every rank of one model once, in rank order, but {found}; {remedy}")]
    Addresses { found: String, remedy: String },
    /// `reason` is the rank's own sentence, whatever it was asked.
    #[error("rank {rank}: {reason}")]
    Refused { rank: u32, call: &'static str, reason: String },
    /// The rank ended the session: all KV of the session is gone.
    #[error("the session with rank {rank} ended: {reason}")]
    SessionEnded { rank: u32, reason: String },
    #[error("rank {rank} broke the protocol: {reason}")]
    Protocol { rank: u32, reason: String },
    /// The caller broke it: a plan that cannot be sent. A bug of the router, not of a rank.
    #[error("the router broke the shard protocol: {reason}; this is a bug")]
    Misuse { reason: String },
}

/// `rank 1`, `ranks 0 and 2`.
fn names(ranks: &[u32]) -> String {
    let numbers: Vec<_> = ranks.iter().map(u32::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, numbers.join(" and "))
}
