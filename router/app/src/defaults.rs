//! Defaults and limits that only the loaded model and the measured memory can settle.

use headrace_scheduler::{Blocks, Config, TokenId, Tokens};
use headrace_shard::{PoolReport, ShardFacts, WarmupLimits};

use crate::config::ServiceConfig;

/// A CPU computes some thousand prompt tokens a second: 512 keep a step's gap near a tenth of a second.
const CPU_PREFILL_TOKENS: Tokens = Tokens(512);
/// A GPU needs this many to be busy.
const GPU_PREFILL_TOKENS: Tokens = Tokens(4096);
/// Host memory for swapped KV of a GPU, bytes: what vLLM took.
const GPU_SWAP_BYTES: u64 = 4 << 30;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("--max-total-tokens {asked} exceeds the model's context of {context} tokens; lower it")]
    AboveContext { asked: Tokens, context: Tokens },
    #[error(
        "--max-total-tokens {asked} exceeds the KV pool of {pool} tokens, so the longest request could never finish; \
         lower it, or raise --max-batch-total-tokens where memory allows"
    )]
    AbovePool { asked: Tokens, pool: Tokens },
    #[error(
        "--max-input-tokens {input} must be less than --max-total-tokens, which is {total} here (the smaller of the \
         model's context and the KV pool)"
    )]
    InputNotBelowTotal { input: Tokens, total: Tokens },
    #[error("the KV pool of {pool} tokens is too small for any request; raise --max-batch-total-tokens")]
    NoRoom { pool: Tokens },
}

/// What was agreed before traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Tokens of a prompt.
    pub max_input: Tokens,
    /// Tokens of prompt and answer together.
    pub max_total: Tokens,
    /// Size of the KV pool.
    pub pool: Tokens,
    pub scheduler: Config,
}

/// What is asked for fits the model's context, as far as that is known.
pub fn within_context(config: &ServiceConfig, context: Option<Tokens>) -> Result<(), LimitError> {
    match (config.limits.max_total_tokens, context) {
        (Some(asked), Some(context)) if asked > context => Err(LimitError::AboveContext { asked, context }),
        _ => Ok(()),
    }
}

/// What Warmup has to make room for.
pub fn warmup_limits(config: &ServiceConfig, facts: &ShardFacts) -> Result<WarmupLimits, LimitError> {
    within_context(config, Some(facts.max_positions))?;
    Ok(WarmupLimits {
        max_batch_size: config.batching.max_batch_size,
        max_batch_prefill_tokens: prefill_tokens(config, facts),
        max_total_tokens: config.limits.max_total_tokens,
        blocks: config.batching.pool_tokens.map(|tokens| tokens.blocks(facts.block_size)),
        host_bytes: config.swap_bytes.unwrap_or(if on_gpu(facts) { GPU_SWAP_BYTES } else { 0 }),
    })
}

/// Settles every limit once the pool is known.
pub fn agree(
    config: &ServiceConfig,
    facts: &ShardFacts,
    pool: &PoolReport,
    eos: Vec<TokenId>,
) -> Result<Agreed, LimitError> {
    let room = pool_tokens(pool.blocks, facts.block_size);
    let max_total = match config.limits.max_total_tokens {
        Some(asked) if asked > room => return Err(LimitError::AbovePool { asked, pool: room }),
        Some(asked) => asked,
        None => room.min(facts.max_positions),
    };
    if max_total < Tokens(2) {
        return Err(LimitError::NoRoom { pool: room });
    }
    let max_input = config.limits.max_input_tokens.unwrap_or(max_total - Tokens(1));
    if max_input >= max_total {
        return Err(LimitError::InputNotBelowTotal { input: max_input, total: max_total });
    }
    let mut scheduler = Config {
        block_size: facts.block_size,
        total_blocks: pool.blocks,
        host_blocks: pool.host_blocks,
        swap_time: pool.swap_time,
        max_batch_size: config.batching.max_batch_size,
        max_batch_prefill_tokens: prefill_tokens(config, facts),
        max_total_tokens: max_total,
        max_concurrent_requests: Some(config.limits.max_concurrent_requests),
        waiting_served_ratio_permille: config.batching.waiting_served_ratio_permille,
        max_waiting_tokens: config.batching.max_waiting_tokens,
        eos,
        preempt_once_seed: config.batching.preempt_once_seed,
        ..Config::default()
    };
    config.scheduling.apply(&mut scheduler);
    Ok(Agreed { max_input, max_total, pool: room, scheduler })
}

/// As asked, else by the device; never more than a pool of a given size can hold.
fn prefill_tokens(config: &ServiceConfig, facts: &ShardFacts) -> Tokens {
    let by_device = if on_gpu(facts) { GPU_PREFILL_TOKENS } else { CPU_PREFILL_TOKENS };
    let asked = config.batching.max_batch_prefill_tokens.unwrap_or(by_device);
    config.batching.pool_tokens.map_or(asked, |pool| asked.min(pool))
}

fn on_gpu(facts: &ShardFacts) -> bool {
    facts.device.starts_with("cuda")
}

fn pool_tokens(blocks: Blocks, block_size: Tokens) -> Tokens {
    Tokens(blocks.0.saturating_mul(block_size.0))
}

#[cfg(test)]
mod tests {
    use headrace_scheduler::{Micros, PolicyKind};

    use super::*;
    use crate::config::{Config as Checked, check};
    use crate::flags;

    fn config(words: &str) -> ServiceConfig {
        let words = ["headrace", "serve"].into_iter().chain(words.split_whitespace());
        let flags = flags::parse(words.map(Into::into)).expect("good words");
        let Ok(Checked::Serve(config)) = check(flags) else { panic!("not a good `serve`") };
        config.service
    }

    fn facts(device: &str) -> ShardFacts {
        ShardFacts {
            model_type: "llama".into(),
            dtype: "float32".into(),
            device: device.into(),
            vocab_size: 100,
            max_positions: Tokens(2048),
            block_size: Tokens(32),
            kv_bytes_per_token: 1,
            ranks: 1,
            tokenizer: None,
            version: "0".into(),
        }
    }

    fn pool(blocks: u32) -> PoolReport {
        PoolReport {
            blocks: Blocks(blocks),
            pool_bytes: 0,
            available_bytes: 0,
            step_us: 0,
            host_blocks: Blocks(3),
            swap_time: Micros(7),
        }
    }

    fn agreed(words: &str, blocks: u32) -> Result<Agreed, LimitError> {
        agree(&config(words), &facts("cpu"), &pool(blocks), vec![2])
    }

    #[test]
    fn the_longest_request_is_the_smaller_of_context_and_pool() {
        let large = agreed("", 1000).expect("room");
        assert_eq!((large.max_total, large.max_input), (Tokens(2048), Tokens(2047)));
        let small = agreed("", 4).expect("room");
        assert_eq!((small.max_total, small.max_input, small.pool), (Tokens(128), Tokens(127), Tokens(128)));
    }

    #[test]
    fn asking_for_more_than_the_model_or_the_pool_is_an_error_with_both_numbers() {
        let error = warmup_limits(&config("--max-total-tokens 2049"), &facts("cpu"));
        assert_eq!(error, Err(LimitError::AboveContext { asked: Tokens(2049), context: Tokens(2048) }));
        let error = agreed("--max-total-tokens 129", 4);
        assert_eq!(error, Err(LimitError::AbovePool { asked: Tokens(129), pool: Tokens(128) }));
        let error = agreed("--max-input-tokens 128", 4);
        assert_eq!(error, Err(LimitError::InputNotBelowTotal { input: Tokens(128), total: Tokens(128) }));
        assert_eq!(agreed("", 0), Err(LimitError::NoRoom { pool: Tokens(0) }));
    }

    #[test]
    fn a_context_that_config_json_tells_is_checked_before_anything_is_loaded() {
        let asked = config("--max-total-tokens 2049");
        let above = LimitError::AboveContext { asked: Tokens(2049), context: Tokens(2048) };
        assert_eq!(within_context(&asked, Some(Tokens(2048))), Err(above));
        assert_eq!(within_context(&asked, Some(Tokens(2049))), Ok(()));
        assert_eq!(within_context(&asked, None), Ok(()));
    }

    #[test]
    fn the_pool_is_rounded_up_to_whole_blocks() {
        let limits = warmup_limits(&config("--max-batch-total-tokens 100 --max-total-tokens 100"), &facts("cpu"));
        assert_eq!(limits.expect("good limits").blocks, Some(Blocks(4)));
    }

    #[test]
    fn prompt_tokens_of_a_step_follow_the_device_the_flag_and_a_small_pool() {
        let tokens = |words: &str, device: &str| {
            warmup_limits(&config(words), &facts(device)).expect("good limits").max_batch_prefill_tokens
        };
        assert_eq!(tokens("", "cpu"), Tokens(512));
        assert_eq!(tokens("", "cuda:0"), Tokens(4096));
        assert_eq!(tokens("--max-batch-prefill-tokens 16", "cpu"), Tokens(16));
        assert_eq!(tokens("--max-batch-total-tokens 64", "cpu"), Tokens(64));
    }

    #[test]
    fn host_memory_follows_the_device_unless_it_is_given() {
        let bytes = |words: &str, device: &str| warmup_limits(&config(words), &facts(device)).expect("good").host_bytes;
        assert_eq!((bytes("", "cpu"), bytes("", "cuda:0")), (0, 4 << 30));
        assert_eq!((bytes("--swap-space 0.5", "cpu"), bytes("--swap-space 0", "cuda:0")), (1 << 29, 0));
    }

    #[test]
    fn scheduling_words_reach_the_scheduler_of_serve_and_the_others_stay() {
        let words =
            "--scheduling-policy static --max-batch-size 8 --max-queue-tokens 900 --no-prefix-cache --watermark 0.1";
        let scheduler = agreed(words, 100).expect("room").scheduler;
        assert_eq!(scheduler.policy, PolicyKind::Static { group_size: 8 });
        assert_eq!(
            (scheduler.max_queue_tokens, scheduler.prefix_cache, scheduler.watermark_permille),
            (Some(900), false, 100)
        );
        let plain = agreed("", 100).expect("room").scheduler;
        let sizes =
            Config { total_blocks: Blocks(100), max_total_tokens: Tokens(2048), eos: vec![2], ..Config::default() };
        let host = Config { host_blocks: Blocks(3), swap_time: Micros(7), ..sizes };
        assert_eq!(plain, Config { max_concurrent_requests: Some(128), ..host });
    }

    #[test]
    fn the_scheduler_gets_what_was_asked() {
        let words = "--max-batch-size 7 --max-concurrent-requests 9 --waiting-served-ratio 1.2 --max-waiting-tokens 20 \
                     --debug-preempt-once-seed 5";
        let scheduler = agreed(words, 100).expect("room").scheduler;
        assert_eq!((scheduler.max_batch_size, scheduler.max_concurrent_requests), (7, Some(9)));
        assert_eq!((scheduler.waiting_served_ratio_permille, scheduler.max_waiting_tokens), (1200, 20));
        assert_eq!(
            (scheduler.preempt_once_seed, scheduler.eos, scheduler.total_blocks),
            (Some(5), vec![2], Blocks(100))
        );
    }
}
