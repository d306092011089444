//! The engine's knobs.

use std::time::Duration;

use crate::trace::TraceFiles;

/// Fixed for an engine's life.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub scheduler: headrace_scheduler::Config,
    /// Updates that a reader may leave unread before its generation is cancelled; at least 1.
    pub stream_buffer: usize,
    pub recovery: Recovery,
    /// Where the scheduler's inputs and plans are recorded.
    pub trace: Option<TraceFiles>,
}

impl EngineConfig {
    /// Updates that a reader may leave unread, unless told otherwise.
    pub const DEFAULT_STREAM_BUFFER: usize = 1024;

    /// The default buffer, and no recovery.
    pub fn new(scheduler: headrace_scheduler::Config) -> Self {
        Self { scheduler, stream_buffer: Self::DEFAULT_STREAM_BUFFER, recovery: Recovery::Fail, trace: None }
    }
}

/// What happens when the session with the shard ends: all KV is gone with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Every generation fails, and the engine stops.
    Fail,
    /// Everybody waits again while a new session is opened; streams go on, no token lost or repeated. The engine stops
    /// when `attempts` in a row came to nothing: no session, or one that ended before its first result.
    Reopen {
        attempts: u32,
        /// Before each attempt but the first.
        delay: Duration,
    },
}
