//! A shard in this process that plays the protocol strictly: for tests, benchmarks and `--fake-shard`.
//!
//! | file | idea |
//! |---|---|
//! | `tokens.rs` | which token follows a history: a pure function of all of it |
//! | `cost.rs` | how long a step takes |
//! | `machine.rs` | executes plans and checks every claim they make |
//! | `kv.rs` | a pretend KV cache that notices blocks freed too early or filled with another history |
//! | `handle.rs` | failures on demand, while it runs |
//! | `session.rs` | the machine, in time |

mod cost;
mod handle;
mod kv;
mod machine;
mod session;
mod tokens;

use headrace_scheduler::{Blocks, Micros, TokenId, Tokens};

use crate::deadlines::Deadlines;
use crate::error::ShardError;
use crate::facts::{PoolReport, ShardFacts, WarmupLimits};

pub use cost::CostModel;
pub use handle::FakeHandle;
use handle::Pool;
pub(crate) use session::FakeSession;
pub use tokens::{EosRule, TokenRule};

/// The fake's settings; give it to [`LogicalShard::fake`](crate::LogicalShard::fake). Clones are the same shard: they
/// share its pool, its session and its [`handle`](Self::handle).
///
/// Tokens are a pure function of the row's history, so `expected_tokens` knows every right answer, and any bug that
/// feeds the shard a wrong history changes it.
#[derive(Clone, Debug)]
pub struct FakeShard {
    facts: ShardFacts,
    cost: CostModel,
    rule: TokenRule,
    deadlines: Deadlines,
    handle: FakeHandle,
}

impl Default for FakeShard {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeShard {
    /// One rank, 32,000 tokens of vocabulary, 8,192 positions, blocks of 32 tokens, 1,024 of them, every step free.
    pub fn new() -> Self {
        let facts = ShardFacts {
            model_type: "fake".into(),
            dtype: "float32".into(),
            device: "cpu".into(),
            vocab_size: 32_000,
            max_positions: Tokens(8192),
            block_size: Tokens(32),
            kv_bytes_per_token: 1024,
            ranks: 1,
            tokenizer: None,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        Self {
            facts,
            cost: CostModel::FREE,
            rule: TokenRule::default(),
            deadlines: Deadlines::default(),
            handle: FakeHandle::new(Blocks(1024)),
        }
    }

    /// What it says it has loaded. `vocab_size` bounds its tokens, `block_size` the block tables it accepts.
    pub fn with_facts(self, facts: ShardFacts) -> Self {
        Self { facts, ..self }
    }

    /// The pool that its memory allows; see also [`FakeHandle::set_blocks`].
    pub fn with_blocks(self, blocks: Blocks) -> Self {
        self.handle.set_blocks(blocks);
        self
    }

    /// How long steps take. Default: nothing.
    pub fn with_cost(self, cost: CostModel) -> Self {
        Self { cost, ..self }
    }

    /// Which tokens it answers with. Default: any of the vocabulary, no end-of-sequence rule.
    pub fn with_rule(self, rule: TokenRule) -> Self {
        Self { rule, ..self }
    }

    /// Only `step` matters here: how long a stalled step may take before the session ends with `Timeout`.
    pub fn with_deadlines(self, deadlines: Deadlines) -> Self {
        Self { deadlines, ..self }
    }

    /// To inject failures, also while it runs.
    pub fn handle(&self) -> FakeHandle {
        self.handle.clone()
    }

    /// The first `n` tokens that follow `prompt`, going on past end-of-sequence.
    pub fn expected_tokens(&self, prompt: &[TokenId], n: usize) -> Vec<TokenId> {
        self.rule.continuation(prompt, self.facts.vocab_size).take(n).map(|(token, _)| token).collect()
    }

    /// At most `n` tokens that follow `prompt`, the last one the [`EosRule`]'s token if it came up.
    pub fn expected_answer(&self, prompt: &[TokenId], n: usize) -> Vec<TokenId> {
        let mut tokens = self.expected_tokens(prompt, n);
        if let Some(end) = self.rule.eos.and_then(|eos| tokens.iter().position(|&token| token == eos.token)) {
            tokens.truncate(end + 1);
        }
        tokens
    }

    /// The log-probabilities of `expected_tokens`.
    pub fn expected_logprobs(&self, prompt: &[TokenId], n: usize) -> Vec<f32> {
        self.rule.continuation(prompt, self.facts.vocab_size).take(n).map(|(_, logprob)| logprob).collect()
    }

    /// The log-probabilities of `prompt`'s positions; the first is NaN.
    pub fn expected_prompt_logprobs(&self, prompt: &[TokenId]) -> Vec<f32> {
        tokens::prompt_logprobs(prompt)
    }

    pub(crate) fn facts(&self) -> Result<ShardFacts, ShardError> {
        self.handle.alive()?;
        Ok(self.facts.clone())
    }

    pub(crate) fn health(&self) -> Result<(), ShardError> {
        self.handle.alive()
    }

    pub(crate) fn warmup(&self, limits: &WarmupLimits) -> Result<PoolReport, ShardError> {
        self.handle.alive()?;
        let offered = self.handle.offered();
        let blocks = limits.blocks.unwrap_or_else(|| offered.min(self.most_useful(limits)));
        if blocks > offered || blocks == Blocks::ZERO {
            let reason = format!("a pool of {blocks} blocks was asked for, memory allows {offered}");
            return Err(ShardError::Refused { rank: 0, call: "Warmup", reason });
        }
        let block_bytes = self.facts.kv_bytes_per_token * u64::from(self.facts.block_size.0);
        let host_blocks = Blocks(u32::try_from(limits.host_bytes / block_bytes).unwrap_or(u32::MAX));
        self.handle.warm(Pool { blocks, host_blocks, max_batch_size: limits.max_batch_size });
        Ok(PoolReport {
            blocks,
            pool_bytes: u64::from(blocks.0) * block_bytes,
            available_bytes: u64::from(offered.0) * block_bytes,
            step_us: self.cost.of(limits.max_batch_prefill_tokens.0, 1).as_micros() as u64,
            host_blocks,
            swap_time: Micros::ZERO,
        })
    }

    /// What a full batch of the longest requests could fill.
    fn most_useful(&self, limits: &WarmupLimits) -> Blocks {
        let longest = limits.max_total_tokens.unwrap_or(self.facts.max_positions).min(self.facts.max_positions);
        Blocks(longest.blocks(self.facts.block_size).0.saturating_mul(limits.max_batch_size))
    }

    pub(crate) fn open(&self) -> Result<FakeSession, ShardError> {
        FakeSession::open(self)
    }
}
