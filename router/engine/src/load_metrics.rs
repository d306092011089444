//! How loaded the scheduler is, and what its cache and its refusals did: gauges and counters, never labelled by tenant.

use headrace_scheduler::{Micros, OverloadCause, PolicyKind, Stats};
use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};

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
    preemptions: Counter,
    recomputed_tokens: Counter,
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
        describe();
        gauge!("tgi_batch_max_total_tokens").set(pool_tokens as f64);
        gauge!("headrace_scheduling_policy_info", "policy" => policy.name()).set(1.0);
        Self {
            queue_size: gauge!("tgi_queue_size"),
            current_size: gauge!("tgi_batch_current_size"),
            current_max_tokens: gauge!("tgi_batch_current_max_tokens"),
            running: gauge!("headrace_running_requests"),
            waiting: gauge!("headrace_waiting_requests"),
            queue_tokens: gauge!("headrace_queue_tokens"),
            drain: gauge!("headrace_predicted_drain_seconds"),
            blocks_free: gauge!("headrace_kv_blocks", "state" => "free"),
            blocks_cached: gauge!("headrace_kv_blocks", "state" => "cached"),
            blocks_held: gauge!("headrace_kv_blocks", "state" => "held"),
            preemptions: counter!("headrace_preemptions_total"),
            recomputed_tokens: counter!("headrace_recomputed_tokens_total"),
            prefix_lookups: counter!("headrace_prefix_lookup_tokens_total"),
            prefix_hits: counter!("headrace_prefix_hit_tokens_total"),
            evicted_blocks: counter!("headrace_prefix_evicted_blocks_total"),
            deadlines_missed: counter!("headrace_deadlines_missed_total"),
            displaced: rejections("displaced"),
            too_many_requests: rejections("requests"),
            too_many_tokens: rejections("queue_tokens"),
            deadline_too_near: rejections("deadline"),
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
    pub(crate) fn publish(&self, stats: &Stats, max_tokens: u64, drain: Micros) {
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
        self.preemptions.absolute(stats.preemptions);
        self.recomputed_tokens.absolute(stats.recomputed_tokens);
        self.prefix_lookups.absolute(stats.prefix.looked_up_tokens);
        self.prefix_hits.absolute(stats.prefix.hit_tokens);
        self.evicted_blocks.absolute(stats.prefix.evicted_blocks);
        self.deadlines_missed.absolute(stats.finished.deadline_missed);
        self.displaced.absolute(stats.finished.displaced);
    }
}

fn rejections(cause: &'static str) -> Counter {
    counter!("headrace_rejections_total", "cause" => cause)
}

fn describe() {
    describe_gauge!("tgi_queue_size", Unit::Count, "Requests that wait for a row of the batch");
    describe_gauge!("tgi_batch_current_size", Unit::Count, "Requests that hold a row of the batch");
    describe_gauge!("tgi_batch_current_max_tokens", Unit::Count, "Prompt and answer tokens, at most, of what runs");
    describe_gauge!("tgi_batch_max_total_tokens", Unit::Count, "Tokens that the KV pool holds");
    describe_gauge!("headrace_scheduling_policy_info", Unit::Count, "1 for the policy that orders waiting requests");
    describe_gauge!("headrace_running_requests", Unit::Count, "Requests that hold a row of the batch");
    describe_gauge!("headrace_waiting_requests", Unit::Count, "Requests that wait for a row of the batch");
    describe_gauge!("headrace_queue_tokens", Unit::Count, "Tokens that waiting requests have to compute first");
    describe_gauge!("headrace_predicted_drain_seconds", Unit::Seconds, "Until those that wait now have a row");
    describe_gauge!("headrace_kv_blocks", Unit::Count, "KV blocks of the pool by state");
    describe_counter!("headrace_preemptions_total", Unit::Count, "Requests put back to wait because blocks ran out");
    describe_counter!("headrace_recomputed_tokens_total", Unit::Count, "Tokens computed again after a preemption");
    describe_counter!("headrace_prefix_lookup_tokens_total", Unit::Count, "Tokens looked for in the prefix cache");
    describe_counter!("headrace_prefix_hit_tokens_total", Unit::Count, "Those of them whose KV was there");
    describe_counter!("headrace_prefix_evicted_blocks_total", Unit::Count, "Cached KV blocks given to other tokens");
    describe_counter!(
        "headrace_deadlines_missed_total",
        Unit::Count,
        "Requests dropped from the queue at their deadline"
    );
    describe_counter!("headrace_rejections_total", Unit::Count, "Requests answered 429, by cause");
}
