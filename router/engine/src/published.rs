//! What anybody may see of a running engine without asking its task.

use std::sync::atomic::{AtomicU64, Ordering};

use headrace_scheduler::{Blocks, Micros, Stats};
use tokio::sync::watch;

/// Whether requests are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineState {
    Serving,
    /// What runs is finished, nothing new is taken.
    Draining,
    /// The engine's task ended; why.
    Dead(String),
}

/// How things stood after the driver's last turn. Each number is right; together they may straddle two turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineSnapshot {
    /// Requests that hold a row of the batch.
    pub running: u64,
    /// Requests that wait for one.
    pub waiting: u64,
    pub blocks_free: Blocks,
    /// Held by nobody, and kept for requests that begin like those that computed them.
    pub blocks_cached: Blocks,
    pub blocks_held: Blocks,
    pub blocks_total: Blocks,
    /// Steps sent whose result has not come.
    pub steps_in_flight: u64,
    /// When those that wait now are predicted to have been let in.
    pub drain: Micros,
    /// Running requests whose prompt is not wholly planned yet.
    pub prefilling: u64,
    pub totals: Totals,
}

/// Since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Prompt tokens of requests that were taken.
    pub prompt_tokens: u64,
    /// Tokens that were sampled for answers.
    pub generated_tokens: u64,
}

/// Written by the driver, read by handles. Numbers are atomics: publishing them takes no lock.
pub(crate) struct Published {
    running: AtomicU64,
    waiting: AtomicU64,
    free: AtomicU64,
    cached: AtomicU64,
    held: AtomicU64,
    total: AtomicU64,
    in_flight: AtomicU64,
    /// Microseconds.
    drain: AtomicU64,
    prefilling: AtomicU64,
    prompt_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    state: watch::Sender<EngineState>,
    /// Nothing runs, waits or is in flight.
    idle: watch::Sender<bool>,
}

impl Published {
    pub(crate) fn new(stats: &Stats, drain: Micros) -> Self {
        let published = Self {
            running: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            free: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            held: AtomicU64::new(0),
            total: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            drain: AtomicU64::new(0),
            prefilling: AtomicU64::new(0),
            prompt_tokens: AtomicU64::new(0),
            generated_tokens: AtomicU64::new(0),
            state: watch::Sender::new(EngineState::Serving),
            idle: watch::Sender::new(true),
        };
        published.publish(stats, &Totals::default(), drain);
        published
    }

    pub(crate) fn publish(&self, stats: &Stats, totals: &Totals, drain: Micros) {
        self.running.store(u64::from(stats.running + stats.ending), Ordering::Relaxed);
        self.waiting.store(u64::from(stats.waiting), Ordering::Relaxed);
        self.free.store(u64::from(stats.blocks.free.0), Ordering::Relaxed);
        self.cached.store(u64::from(stats.blocks.cached.0), Ordering::Relaxed);
        self.held.store(u64::from(stats.blocks.held.0), Ordering::Relaxed);
        self.total.store(u64::from(stats.blocks.total.0), Ordering::Relaxed);
        self.in_flight.store(u64::from(stats.steps_in_flight), Ordering::Relaxed);
        self.drain.store(drain.0, Ordering::Relaxed);
        self.prefilling.store(u64::from(stats.prefilling), Ordering::Relaxed);
        self.prompt_tokens.store(totals.prompt_tokens, Ordering::Relaxed);
        self.generated_tokens.store(totals.generated_tokens, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> EngineSnapshot {
        let blocks = |count: &AtomicU64| Blocks(count.load(Ordering::Relaxed) as u32);
        EngineSnapshot {
            running: self.running.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            blocks_free: blocks(&self.free),
            blocks_cached: blocks(&self.cached),
            blocks_held: blocks(&self.held),
            blocks_total: blocks(&self.total),
            steps_in_flight: self.in_flight.load(Ordering::Relaxed),
            drain: Micros(self.drain.load(Ordering::Relaxed)),
            prefilling: self.prefilling.load(Ordering::Relaxed),
            totals: Totals {
                prompt_tokens: self.prompt_tokens.load(Ordering::Relaxed),
                generated_tokens: self.generated_tokens.load(Ordering::Relaxed),
            },
        }
    }

    pub(crate) fn state(&self) -> EngineState {
        self.state.borrow().clone()
    }

    pub(crate) fn is_serving(&self) -> bool {
        *self.state.borrow() == EngineState::Serving
    }

    /// Serving becomes draining; says whether it did.
    pub(crate) fn drain(&self) -> bool {
        self.state.send_if_modified(|state| {
            let serving = *state == EngineState::Serving;
            if serving {
                *state = EngineState::Draining;
            }
            serving
        })
    }

    /// The end; only the first reason counts.
    pub(crate) fn die(&self, reason: &str) {
        self.state.send_if_modified(|state| {
            let alive = !matches!(state, EngineState::Dead(_));
            if alive {
                *state = EngineState::Dead(reason.to_owned());
            }
            alive
        });
        self.set_idle(true);
    }

    pub(crate) fn set_idle(&self, idle: bool) {
        self.idle.send_if_modified(|current| std::mem::replace(current, idle) != idle);
    }

    pub(crate) async fn idle(&self) {
        // Fails only when the sender is gone, and `self` holds it.
        let _ = self.idle.subscribe().wait_for(|idle| *idle).await;
    }
}
