//! The prefix cache: looking up, and publishing, a prompt of 4,096 tokens in a tree of 10,000 cached blocks.
//!
//! `admit`: the whole way of such a request through the scheduler: submit, and the plan that admits it with a hit.

use std::hint::black_box;

use criterion::{BatchSize, Criterion};
use headrace_scheduler::*;

const BLOCK: u32 = 16;
const PROMPT: u32 = 4096;
const CACHED: u32 = 10_000;
const NOW: Micros = Micros(0);

/// `length` tokens, from a small generator (xorshift); the first `shared` are the same for every seed.
fn prompt(seed: u64, shared: u32, length: u32) -> Vec<TokenId> {
    let mut random = 1_u64;
    (0..length)
        .map(|position| {
            if position == shared {
                random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            }
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 40) as u32
        })
        .collect()
}

/// Prompts that share their first half with each other, published until `CACHED` blocks are in the tree.
fn full_tree() -> (PrefixTree, u32) {
    let mut tree = PrefixTree::new(BLOCK, 4 * CACHED);
    let mut next = 0;
    for seed in 1..u64::from(2 * CACHED * BLOCK / PROMPT) {
        publish(&mut tree, &prompt(seed, PROMPT / 2, PROMPT), &mut next);
    }
    (tree, next)
}

fn publish(tree: &mut PrefixTree, tokens: &[TokenId], next: &mut u32) {
    let blocks: Vec<BlockId> = (*next..*next + tokens.len() as u32 / BLOCK).map(BlockId).collect();
    let mut known = Vec::new();
    tree.insert(&CacheRoot::default(), None, 0, tokens, &blocks, &mut known);
    *next += blocks.len() as u32;
}

fn scheduler() -> Scheduler {
    let mut scheduler = Scheduler::new(Config {
        block_size: Tokens(BLOCK),
        total_blocks: Blocks(2 * CACHED),
        max_batch_prefill_tokens: Tokens(PROMPT),
        max_total_tokens: Tokens(2 * PROMPT),
        ..Config::default()
    });
    for seed in 1..u64::from(2 * CACHED * BLOCK / PROMPT) {
        run(&mut scheduler, prompt(seed, PROMPT / 2, PROMPT));
    }
    scheduler
}

/// A whole request of one token.
fn run(scheduler: &mut Scheduler, prompt: Vec<TokenId>) {
    admit(scheduler, prompt);
    finish(scheduler);
}

fn admit(scheduler: &mut Scheduler, prompt: Vec<TokenId>) {
    scheduler.submit(Request::new(prompt, Tokens(1)), NOW).expect("it fits");
    black_box(scheduler.plan_step(NOW)).expect("it enters");
}

fn finish(scheduler: &mut Scheduler) {
    let outcome = StepOutcome::Done { samples: vec![Sample::Token(1)], failed: vec![], took: Micros(1000) };
    scheduler.complete_step(StepId(scheduler.stats().steps), outcome, NOW);
    while scheduler.poll_event().is_some() {}
    while scheduler.poll_release().is_some() {}
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group(format!("{PROMPT} tokens, {CACHED} cached blocks"));
    let (tree, next) = full_tree();
    let known = prompt(1, PROMPT / 2, PROMPT);
    group.bench_function("look up, all known", |bencher| {
        let mut found = Vec::new();
        bencher.iter(|| {
            found.clear();
            tree.find(&CacheRoot::default(), black_box(&known), usize::MAX / BLOCK as usize, &mut found);
            assert_eq!(found.len() as u32, PROMPT / BLOCK);
        });
    });
    let new = prompt(u64::MAX, PROMPT / 2, PROMPT);
    group.bench_function("look up and publish, half known", |bencher| {
        let fresh = || (tree.clone(), next);
        let insert = |(mut tree, mut next): (PrefixTree, u32)| {
            publish(&mut tree, &new, &mut next);
            tree
        };
        bencher.iter_batched(fresh, insert, BatchSize::LargeInput);
    });
    let mut scheduler = scheduler();
    group.bench_function("admit, all known", |bencher| {
        bencher.iter_custom(|times| {
            let mut spent = std::time::Duration::ZERO;
            for _ in 0..times {
                let prompt = known.clone();
                let start = std::time::Instant::now();
                admit(&mut scheduler, prompt);
                spent += start.elapsed();
                finish(&mut scheduler);
            }
            spent
        });
    });
    group.finish();
    criterion.final_summary();
}
