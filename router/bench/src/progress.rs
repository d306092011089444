//! How far a run is, for whoever watches it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts up while a run goes on; shared with it.
#[derive(Debug, Default)]
pub struct Progress {
    started: AtomicU64,
    whole: AtomicU64,
    failed: AtomicU64,
    events: AtomicU64,
}

/// What was counted at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub started: u64,
    pub whole: u64,
    pub failed: u64,
    /// Events that came: about as many as tokens.
    pub events: u64,
}

impl Progress {
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            started: read(&self.started),
            whole: read(&self.whole),
            failed: read(&self.failed),
            events: read(&self.events),
        }
    }

    pub(crate) fn started(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, whole: bool) {
        if whole { &self.whole } else { &self.failed }.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn events(&self, count: u64) {
        self.events.fetch_add(count, Ordering::Relaxed);
    }
}

impl Counts {
    pub fn ended(&self) -> u64 {
        self.whole + self.failed
    }

    pub fn running(&self) -> u64 {
        self.started.saturating_sub(self.ended())
    }
}
