//! An engine over a fake shard: what most tests need, in one line.

pub mod tokenizer;

use std::time::Duration;

use headrace_engine::{
    Engine, EngineConfig, EngineTask, Finished, GeneratedToken, Generation, GenerationError, GenerationRequest,
    Observed, Recovery, StopText, Terms, TraceFiles, Update,
};
use headrace_scheduler::{Blocks, Config, PolicyKind, TokenId, Tokens};
use headrace_shard::{CostModel, FakeHandle, FakeShard, LogicalShard, Sampling, ShardFacts, TokenRule, WarmupLimits};
use headrace_text::SpecialTokens;

pub const BLOCK: Tokens = Tokens(4);

pub struct World {
    pub engine: Engine,
    pub task: EngineTask,
    pub fake: FakeShard,
    pub handle: FakeHandle,
}

/// What a test may want otherwise.
pub struct Setup {
    pub blocks: Blocks,
    pub max_batch_size: u32,
    pub max_batch_prefill_tokens: Tokens,
    pub max_concurrent_requests: Option<u32>,
    pub policy: PolicyKind,
    pub preempt_once_seed: Option<u64>,
    pub eos: Vec<TokenId>,
    pub choices: Vec<TokenId>,
    pub step: Duration,
    pub stream_buffer: usize,
    pub recovery: Recovery,
    pub trace: Option<TraceFiles>,
}

impl Default for Setup {
    /// Room for everybody, 30 ms a step, answers of the letters a to e.
    fn default() -> Self {
        Self {
            blocks: Blocks(1000),
            max_batch_size: 64,
            max_batch_prefill_tokens: Tokens(256),
            max_concurrent_requests: None,
            policy: PolicyKind::Fcfs,
            preempt_once_seed: None,
            eos: vec![tokenizer::END],
            choices: tokenizer::ids("abcde"),
            step: Duration::from_millis(30),
            stream_buffer: 1024,
            recovery: Recovery::Fail,
            trace: None,
        }
    }
}

impl Setup {
    pub async fn start(self) -> World {
        let facts = ShardFacts {
            model_type: "fake".into(),
            dtype: "float32".into(),
            device: "cpu".into(),
            vocab_size: tokenizer::END + 1,
            max_positions: Tokens(4096),
            block_size: BLOCK,
            kv_bytes_per_token: 1,
            ranks: 1,
            tokenizer: None,
            version: "0".into(),
        };
        let fake = FakeShard::new()
            .with_facts(facts)
            .with_blocks(self.blocks)
            .with_cost(CostModel { step: self.step, ..CostModel::FREE })
            .with_rule(TokenRule { choices: Some(self.choices.into()), eos: None });
        let shard = LogicalShard::fake(fake.clone());
        let limits = WarmupLimits {
            max_batch_size: self.max_batch_size,
            max_batch_prefill_tokens: self.max_batch_prefill_tokens,
            max_total_tokens: None,
            blocks: Some(self.blocks),
            host_bytes: 0,
        };
        shard.warmup(&limits).await.expect("warms up");
        let scheduler = Config {
            block_size: BLOCK,
            total_blocks: self.blocks,
            max_batch_size: self.max_batch_size,
            max_batch_prefill_tokens: self.max_batch_prefill_tokens,
            max_total_tokens: Tokens(BLOCK.0 * self.blocks.0),
            max_concurrent_requests: self.max_concurrent_requests,
            policy: self.policy,
            eos: self.eos,
            preempt_once_seed: self.preempt_once_seed,
            ..Config::default()
        };
        let config =
            EngineConfig { scheduler, stream_buffer: self.stream_buffer, recovery: self.recovery, trace: self.trace };
        let (engine, task) = Engine::start(config, shard, tokenizer::bytes()).await.expect("starts");
        World { engine, task, handle: fake.handle(), fake }
    }
}

impl World {
    pub async fn new() -> Self {
        Setup::default().start().await
    }

    pub async fn generate(&self, prompt: &str, max_new: u32) -> Generation {
        self.engine.generate(request(prompt, max_new)).await.expect("taken")
    }

    /// The tokens that a right answer has.
    pub fn expected(&self, prompt: &str, max_new: u32) -> Vec<TokenId> {
        self.fake.expected_tokens(&tokenizer::ids(prompt), max_new as usize)
    }

    /// Their text.
    pub fn expected_text(&self, prompt: &str, max_new: u32) -> String {
        tokenizer::bytes().decode(&self.expected(prompt, max_new), true).expect("decodes")
    }

    /// Nothing runs, waits or holds a block; computed ones may be cached.
    pub async fn assert_idle_and_empty(&self) {
        self.engine.idle().await;
        let now = self.engine.snapshot();
        assert_eq!((now.running, now.waiting, now.blocks_held), (0, 0, Blocks(0)), "{now:?}");
        assert_eq!(now.blocks_free + now.blocks_cached, now.blocks_total);
    }
}

pub fn request(prompt: &str, max_new: u32) -> GenerationRequest {
    GenerationRequest {
        prompt: tokenizer::ids(prompt),
        max_new_tokens: Tokens(max_new),
        ignore_eos: false,
        stop: Vec::new(),
        stop_text: StopText::Keep,
        special_tokens: SpecialTokens::Show,
        sampling: Sampling::greedy(),
        terms: Terms::default(),
        observed: Observed::default(),
    }
}

/// All that a generation said.
#[derive(Debug, Default)]
pub struct Said {
    pub prompts: Vec<Vec<f32>>,
    pub tokens: Vec<GeneratedToken>,
    pub finished: Option<Finished>,
    pub error: Option<GenerationError>,
}

impl Said {
    pub fn ids(&self) -> Vec<TokenId> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    pub fn event_text(&self) -> String {
        self.tokens.iter().map(|token| token.text.as_str()).collect()
    }

    pub fn finished(&self) -> &Finished {
        self.finished.as_ref().unwrap_or_else(|| panic!("no answer: {:?}", self.error))
    }
}

/// Reads a generation to its end.
pub async fn read(mut generation: Generation) -> Said {
    let mut said = Said::default();
    while let Some(update) = generation.next().await {
        assert!(said.finished.is_none() && said.error.is_none(), "{update:?} after the end");
        match update {
            Update::Prompt(logprobs) => {
                assert!(said.tokens.is_empty(), "the prompt comes first");
                said.prompts.push(logprobs);
            }
            Update::Token(token) => said.tokens.push(token),
            Update::Finished(finished) => said.finished = Some(finished),
            Update::Failed(error) => said.error = Some(error),
        }
    }
    assert!(said.finished.is_some() || said.error.is_some(), "a generation ends with an answer or an error");
    said
}

/// The next update, which must be a token.
pub async fn token(generation: &mut Generation) -> GeneratedToken {
    match generation.next().await {
        Some(Update::Token(token)) => token,
        other => panic!("expected a token, got {other:?}"),
    }
}
