//! How loaded the scheduler is, and what its cache and its refusals did: gauges and counters, never labelled by tenant.

use headrace_scheduler::{Micros, OverloadCause, PolicyKind, Stats};
use headrace_telemetry::{Counter, Gauge, table};

use crate::published::Totals;

/// Handles, made once.
pub(crate) struct LoadMetrics {
    queue_size: Gauge,
    current_size: Gauge,
    current_max_tokens: Gauge,
    running: Gauge,
    waiting: Gauge,
    queue_tokens: Gauge,
    drain: Gauge,
    blocks_free: Gauge,
    blocks_cached: Gauge,
    blocks_held: Gauge,
    kv_usage: Gauge,
    prompt_tokens: Counter,
    generated_tokens: Counter,
    preemptions: Counter,
    recomputed_tokens: Counter,
    swapped_blocks: Counter,
    host_blocks_used: Gauge,
    prefix_lookups: Counter,
    prefix_hits: Counter,
    evicted_blocks: Counter,
    deadlines_missed: Counter,
    displaced: Counter,
    too_many_requests: Counter,
    too_many_tokens: Counter,
    deadline_too_near: Counter,
}

impl LoadMetrics {
    /// `pool_tokens`: how many tokens the KV pool holds.
    pub(crate) fn new(pool_tokens: u64, policy: PolicyKind) -> Self {
        table::BATCH_MAX_TOTAL_TOKENS.handle().set(pool_tokens as f64);
        table::SCHEDULING_POLICY.of(policy.name()).set(1.0);
        Self {
            queue_size: table::QUEUE_SIZE.handle(),
            current_size: table::BATCH_CURRENT_SIZE.handle(),
            current_max_tokens: table::BATCH_CURRENT_MAX_TOKENS.handle(),
            running: table::RUNNING_REQUESTS.handle(),
            waiting: table::WAITING_REQUESTS.handle(),
            queue_tokens: table::QUEUE_TOKENS.handle(),
            drain: table::PREDICTED_DRAIN.handle(),
            blocks_free: table::KV_BLOCKS.of("free"),
            blocks_cached: table::KV_BLOCKS.of("cached"),
            blocks_held: table::KV_BLOCKS.of("held"),
            kv_usage: table::KV_USAGE.handle(),
            prompt_tokens: table::PROMPT_TOKENS.handle(),
            generated_tokens: table::GENERATED_TOKENS.handle(),
            preemptions: table::PREEMPTIONS.handle(),
            recomputed_tokens: table::RECOMPUTED_TOKENS.handle(),
            swapped_blocks: table::SWAPPED_BLOCKS.handle(),
            host_blocks_used: table::HOST_BLOCKS_USED.handle(),
            prefix_lookups: table::PREFIX_LOOKUP_TOKENS.handle(),
            prefix_hits: table::PREFIX_HIT_TOKENS.handle(),
            evicted_blocks: table::PREFIX_EVICTED_BLOCKS.handle(),
            deadlines_missed: table::DEADLINES_MISSED.handle(),
            displaced: table::REJECTIONS.of("displaced"),
            too_many_requests: table::REJECTIONS.of("requests"),
            too_many_tokens: table::REJECTIONS.of("queue_tokens"),
            deadline_too_near: table::REJECTIONS.of("deadline"),
        }
    }

    /// A request was refused when it came. One that is displaced later is counted by the scheduler.
    pub(crate) fn rejected(&self, cause: &OverloadCause) {
        match cause {
            OverloadCause::Requests { .. } => self.too_many_requests.increment(1),
            OverloadCause::QueueTokens { .. } => self.too_many_tokens.increment(1),
            OverloadCause::Deadline { .. } => self.deadline_too_near.increment(1),
            OverloadCause::Displaced => {}
        }
    }

    /// `max_tokens`: prompt and answer tokens, at most, of what runs. `drain`: when those that wait are predicted to
    /// have been let in.
    pub(crate) fn publish(&self, stats: &Stats, totals: &Totals, max_tokens: u64, drain: Micros) {
        let running = f64::from(stats.running + stats.ending);
        self.queue_size.set(f64::from(stats.waiting));
        self.current_size.set(running);
        self.current_max_tokens.set(max_tokens as f64);
        self.running.set(running);
        self.waiting.set(f64::from(stats.waiting));
        self.queue_tokens.set(stats.queued_tokens as f64);
        self.drain.set(drain.0 as f64 / 1e6);
        self.blocks_free.set(f64::from(stats.blocks.free.0));
        self.blocks_cached.set(f64::from(stats.blocks.cached.0));
        self.blocks_held.set(f64::from(stats.blocks.held.0));
        self.kv_usage.set(f64::from(stats.blocks.held.0) / f64::from(stats.blocks.total.0.max(1)));
        self.prompt_tokens.absolute(totals.prompt_tokens);
        self.generated_tokens.absolute(totals.generated_tokens);
        self.preemptions.absolute(stats.preemptions);
        self.recomputed_tokens.absolute(stats.recomputed_tokens);
        self.swapped_blocks.absolute(stats.swapped_blocks);
        self.host_blocks_used.set(f64::from(stats.host_blocks_used.0));
        self.prefix_lookups.absolute(stats.prefix.looked_up_tokens);
        self.prefix_hits.absolute(stats.prefix.hit_tokens);
        self.evicted_blocks.absolute(stats.prefix.evicted_blocks);
        self.deadlines_missed.absolute(stats.finished.deadline_missed);
        self.displaced.absolute(stats.finished.displaced);
    }
}
