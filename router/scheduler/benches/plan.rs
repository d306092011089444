//! What a step costs the scheduler: `plan_step` and `complete_step` with 256 and 1,024 running rows.
//!
//! First prints percentiles of single steps, since a mean hides the step that a user waits for, and how often a step
//! allocates, which must not depend on its rows; then criterion's own measurement. `steady`: every row decodes at 1,024 to 2,016 tokens, nobody comes or goes. `churn`: answers of 1 to 128 tokens end and new
//! requests of 1 to 256 prompt tokens take their rows, with twice as many waiting as run.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use headrace_scheduler::*;

/// The system's allocator, counted.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONTEXT: u32 = 1024;
const NOW: Micros = Micros(0);

/// A scheduler that is always full, and the oldest step in flight.
struct Load {
    scheduler: Scheduler,
    in_flight: Option<(StepId, usize)>,
    rows: u32,
    steps: u32,
    churn: bool,
    random: u64,
    /// Allocations of the last step.
    counted: u64,
}

impl Load {
    fn new(rows: u32, churn: bool) -> Self {
        let scheduler = Scheduler::new(Config {
            block_size: Tokens(16),
            total_blocks: Blocks(rows * 2 * CONTEXT / 16),
            max_batch_size: rows,
            max_batch_prefill_tokens: Tokens(4096),
            max_total_tokens: Tokens(1 << 16),
            eos: vec![0, 1],
            ..Config::default()
        });
        let mut load = Self { scheduler, in_flight: None, rows, steps: 0, churn, random: 1, counted: 0 };
        let requests = if churn { 3 * rows } else { rows };
        (0..requests).for_each(|_| load.submit());
        while load.scheduler.stats().decoding < rows && load.scheduler.stats().finished.total() < u64::from(rows) {
            load.step();
        }
        load.steps = 0;
        load
    }

    /// A small generator (xorshift) with a fixed seed: every run measures the same steps.
    fn below(&mut self, limit: u64) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % limit) as u32
    }

    fn submit(&mut self) {
        let (prompt, max_new) =
            if self.churn { (1 + self.below(256), 1 + self.below(128)) } else { (CONTEXT, 1 << 15) };
        let request = Request::new(vec![7; prompt as usize], Tokens(max_new));
        self.scheduler.submit(request, NOW).expect("it fits");
    }

    /// `step`, on a new load when the rows of a steady one have grown too long for their name.
    fn measure(&mut self) -> Duration {
        if !self.churn && self.steps == CONTEXT - 32 {
            *self = Self::new(self.rows, self.churn);
        }
        self.step()
    }

    /// Plans the next step while one is in flight, then lands that one. Returns the time of both calls.
    fn step(&mut self) -> Duration {
        self.steps += 1;
        let samples = self.in_flight.map_or(0, |(_, samples)| samples);
        let outcome =
            StepOutcome::Done { samples: vec![Sample::Token(9); samples], failed: vec![], took: Micros(30_000) };
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let start = Instant::now();
        let plan = self.scheduler.plan_step(NOW);
        if let Some((step, _)) = self.in_flight {
            self.scheduler.complete_step(step, outcome, NOW);
        }
        let elapsed = start.elapsed();
        self.counted = ALLOCATIONS.load(Ordering::Relaxed) - before;
        self.in_flight = plan.map(|plan| (plan.step, black_box(&plan).sampling_rows().count()));
        self.drain();
        elapsed
    }

    /// How often the scheduler allocates in a step.
    fn allocations(&mut self) -> u64 {
        self.counted = 0;
        self.measure();
        self.counted
    }

    fn drain(&mut self) {
        while self.scheduler.poll_release().is_some() {}
        while let Some(event) = self.scheduler.poll_event() {
            if matches!(event, Event::Finished { .. }) {
                self.submit();
            }
        }
    }
}

fn percentiles(rows: u32, name: &str, churn: bool) {
    let mut load = Load::new(rows, churn);
    let mut times: Vec<Duration> = (0..8_000).map(|_| load.measure()).collect();
    let mut allocations: Vec<u64> = (0..500).map(|_| load.allocations()).collect();
    allocations.sort_unstable();
    times.sort_unstable();
    let at = |permille: usize| times[times.len() * permille / 1000].as_secs_f64() * 1e6;
    println!(
        "{name:>6} {rows:>5} rows, plan + complete: p50 {:.1} µs, p90 {:.1} µs, p99 {:.1} µs, p99.9 {:.1} µs; {} allocations a step",
        at(500),
        at(900),
        at(990),
        at(999),
        allocations[allocations.len() / 2]
    );
}

fn main() {
    let loads = [(256, "steady", false), (256, "churn", true), (1024, "steady", false), (1024, "churn", true)];
    for (rows, name, churn) in loads {
        percentiles(rows, name, churn);
    }
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("plan + complete");
    for (rows, name, churn) in loads {
        group.bench_function(BenchmarkId::new(name, rows), |bencher| {
            let mut load = Load::new(rows, churn);
            bencher.iter_custom(|steps| (0..steps).map(|_| load.measure()).sum());
        });
    }
    group.finish();
    criterion.final_summary();
}
