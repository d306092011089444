//! What the router's own work costs: tokens a second through the engine, and its CPU time per token, over a fake shard
//! whose steps are free. Everything but HTTP is real. `cargo bench -p headrace-engine`.

use std::time::{Duration, Instant};

use headrace_engine::{Engine, EngineConfig, GenerationRequest, Observed, StopText, Terms, Update};
use headrace_scheduler::{Blocks, Config, Tokens};
use headrace_shard::{FakeShard, LogicalShard, Sampling, ShardFacts, TokenRule, WarmupLimits};
use headrace_text::SpecialTokens;

#[path = "../tests/engine/world/tokenizer.rs"]
mod tokenizer;

const TOKENS_EACH: u32 = 400;
/// Of each measurement: enough for the clock of CPU time, which counts hundredths of a second.
const TOKENS: u32 = 204_800;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    println!("{:>6} {:>6} {:>12} {:>14}", "rows", "stops", "tokens/s", "CPU µs/token");
    for (rows, stop) in [(1, false), (16, false), (64, false), (256, false), (256, true)] {
        let (wall, cpu) = runtime.block_on(measure(rows, stop));
        let tokens = f64::from(TOKENS);
        let stops = if stop { 4 } else { 0 };
        println!(
            "{rows:>6} {stops:>6} {:>12.0} {:>14.2}",
            tokens / wall.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / tokens
        );
    }
}

/// Wall and CPU time (all threads, the fake's and the readers' too) of `rows` answers at once.
async fn measure(rows: u32, stop: bool) -> (Duration, Duration) {
    let engine = engine().await;
    let (wall, cpu) = (Instant::now(), cpu_time());
    let readers: Vec<_> = (0..rows).map(|n| tokio::spawn(answers(engine.clone(), n, rows, stop))).collect();
    for reader in readers {
        reader.await.expect("reads");
    }
    (wall.elapsed(), cpu_time() - cpu)
}

/// One reader's share, one answer after another.
async fn answers(engine: Engine, n: u32, rows: u32, stop: bool) {
    for _ in 0..TOKENS / TOKENS_EACH / rows {
        assert_eq!(answer(&engine, n, stop).await, TOKENS_EACH);
    }
}

async fn answer(engine: &Engine, n: u32, stop: bool) -> u32 {
    let stops = ["never in it", "xyz", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\n\n"];
    let request = GenerationRequest {
        prompt: tokenizer::ids(&format!("prompt {n}")),
        max_new_tokens: Tokens(TOKENS_EACH),
        ignore_eos: true,
        stop: if stop { stops.map(String::from).to_vec() } else { Vec::new() },
        stop_text: StopText::Keep,
        special_tokens: SpecialTokens::Show,
        sampling: Sampling::greedy(),
        terms: Terms::default(),
        observed: Observed::default(),
    };
    let mut generation = engine.generate(request).await.expect("taken");
    let mut tokens = 0;
    while let Some(update) = generation.next().await {
        match update {
            Update::Token(token) => tokens += u32::from(!token.text.is_empty()),
            Update::Finished(finished) => assert_eq!(finished.generated, Tokens(TOKENS_EACH)),
            other => panic!("{other:?}"),
        }
    }
    tokens
}

async fn engine() -> Engine {
    let (block_size, blocks) = (Tokens(32), Blocks(256 * 16));
    let facts = ShardFacts {
        model_type: "fake".into(),
        dtype: "float32".into(),
        device: "cpu".into(),
        vocab_size: tokenizer::END + 1,
        max_positions: Tokens(4096),
        block_size,
        kv_bytes_per_token: 1,
        ranks: 1,
        tokenizer: None,
        version: "0".into(),
    };
    let rule = TokenRule { choices: Some(tokenizer::ids("abcdefgh ").into()), eos: None };
    let shard = LogicalShard::fake(FakeShard::new().with_facts(facts).with_blocks(blocks).with_rule(rule));
    let limits = WarmupLimits {
        max_batch_size: 256,
        max_batch_prefill_tokens: Tokens(4096),
        max_total_tokens: None,
        blocks: Some(blocks),
        host_bytes: 0,
    };
    shard.warmup(&limits).await.expect("warms up");
    let scheduler = Config {
        block_size,
        total_blocks: blocks,
        max_batch_size: 256,
        max_batch_prefill_tokens: Tokens(4096),
        max_total_tokens: Tokens(4096),
        eos: vec![tokenizer::END],
        ..Config::default()
    };
    Engine::start(EngineConfig::new(scheduler), shard, tokenizer::bytes()).await.expect("starts").0
}

/// User and system time of this process: fields 14 and 15 of /proc/self/stat, in hundredths of a second.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
