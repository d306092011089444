//! How long anything may take before the shard counts as lost.

use std::time::Duration;

/// A limit for every call: none waits for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Until every rank accepts connections. A shard listens before its weights are loaded, so this covers a process's
    /// start (and, across machines, its placement). Default 10 minutes.
    pub connect: Duration,
    /// Until a rank that does not accept counts as missing, and between two looks at who still is. Default 5 seconds:
    /// processes that start now are not missed.
    pub patience: Duration,
    /// Info, and opening a session's streams: a shard answers them at once, but Info waits until its weights are
    /// loaded. Default 10 minutes.
    pub info: Duration,
    /// Measuring memory, allocating the pool and running the worst-case step. Default 10 minutes.
    pub warmup: Duration,
    /// Answered off the model thread, so a long step is no excuse. Default 5 seconds.
    pub health: Duration,
    /// One step, from the moment when nothing older was under way. Too short kills a slow shard that works (a 512-token
    /// step of a large model on a small CPU takes many seconds); too long keeps clients waiting for one that hangs.
    /// Default 2 minutes.
    pub step: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(600),
            patience: Duration::from_secs(5),
            info: Duration::from_secs(600),
            warmup: Duration::from_secs(600),
            health: Duration::from_secs(5),
            step: Duration::from_secs(120),
        }
    }
}
