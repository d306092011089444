//! Why a logical shard could not do what was asked.

use std::time::Duration;

/// What a rank did names the rank: 'rank 1' is what an operator can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    #[error("cannot reach rank {rank} at {address}: {reason}")]
    Unreachable { rank: u32, address: String, reason: String },
    #[error("rank {rank} did not answer {call} within {limit:?}")]
    Timeout { rank: u32, call: &'static str, limit: Duration },
    /// `reason` is the rank's own sentence, whatever it was asked.
    #[error("rank {rank}: {reason}")]
    Refused { rank: u32, call: &'static str, reason: String },
    /// A stream of the session broke: all KV of the session is gone.
    #[error("the session with rank {rank} ended: {reason}")]
    SessionEnded { rank: u32, reason: String },
    #[error("rank {rank} broke the protocol: {reason}")]
    Protocol { rank: u32, reason: String },
    /// The caller broke it: a plan that cannot be sent. A bug of the router, not of a rank.
    #[error("the router broke the shard protocol: {reason}; this is a bug")]
    Misuse { reason: String },
}
