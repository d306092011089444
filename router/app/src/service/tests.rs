use std::sync::atomic::{AtomicBool, Ordering};

use headrace_engine::{EngineStopped, GenerationRequest, Observed, StopText, Terms};
use headrace_scheduler::{Config as SchedulerConfig, Tokens};
use headrace_shard::{FakeHandle, FakeShard, Sampling, WarmupLimits};
use headrace_text::SpecialTokens;

use super::*;
use crate::supervise::Cause;

/// A service over a fake shard; its HTTP server only waits to be told to stop.
struct World {
    service: Service,
    engine: Engine,
    shard: FakeHandle,
    http_was_stopped: Arc<AtomicBool>,
    end_http: oneshot::Sender<()>,
}

impl World {
    async fn new() -> Self {
        let fake = FakeShard::new();
        let handle = fake.handle();
        let shard = LogicalShard::fake(fake);
        let limits = WarmupLimits {
            max_batch_size: 4,
            max_batch_prefill_tokens: Tokens(64),
            max_total_tokens: None,
            blocks: None,
            host_bytes: 0,
        };
        let pool = shard.warmup(&limits).await.expect("a fake's pool");
        let scheduler = SchedulerConfig {
            block_size: Tokens(32),
            total_blocks: pool.blocks,
            max_batch_size: 4,
            max_batch_prefill_tokens: Tokens(64),
            max_total_tokens: Tokens(1024),
            ..SchedulerConfig::default()
        };
        let json = br#"{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}"#;
        let tokenizer = Arc::new(Tokenizer::from_bytes(json).expect("a tokenizer"));
        let (engine, task) = Engine::start(EngineConfig::new(scheduler), shard, tokenizer).await.expect("a session");

        let (stop_http, stopped) = oneshot::channel();
        let (end_http, ended) = oneshot::channel();
        let http_was_stopped = Arc::new(AtomicBool::new(false));
        let told = http_was_stopped.clone();
        let http = tokio::spawn(async move {
            tokio::select! {
                Ok(()) = stopped => told.store(true, Ordering::SeqCst),
                Ok(()) = ended => {}
            }
            Ok(())
        });
        let graceful_termination = Duration::from_secs(1);
        let engine_too = engine.clone();
        let service = Service {
            engine: engine_too,
            task,
            http,
            stop_http,
            _metrics_port: None,
            exporting: None,
            graceful_termination,
        };
        Self { service, engine, shard: handle, http_was_stopped, end_http }
    }

    /// A request that runs until something ends it.
    async fn generate(&self) -> headrace_engine::Generation {
        let request = GenerationRequest {
            prompt: vec![0],
            max_new_tokens: Tokens(1000),
            ignore_eos: true,
            stop: Vec::new(),
            stop_text: StopText::Keep,
            special_tokens: SpecialTokens::Show,
            sampling: Sampling::greedy(),
            terms: Terms::default(),
            observed: Observed::default(),
        };
        self.shard.stall();
        self.engine.generate(request).await.expect("it is taken")
    }
}

fn death() -> Death {
    Death { rank: 0, pid: 1, cause: Cause::Signal(9), last_lines: Vec::new() }
}

#[tokio::test]
async fn a_dead_process_is_the_reason_and_the_last_answers_are_delivered() {
    let world = World::new().await;
    let mut signals = Signals::install().expect("signals");
    world.shard.die();
    let outcome = world.service.run(&mut signals, std::future::ready(death())).await;
    assert!(matches!(outcome, Err(Failure::Died(_))), "{outcome:?}");
    assert!(world.http_was_stopped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn an_engine_that_stops_is_the_reason() {
    let world = World::new().await;
    let mut signals = Signals::install().expect("signals");
    let _generation = world.generate().await;
    world.shard.die();
    let outcome = world.service.run(&mut signals, std::future::pending()).await;
    assert!(matches!(outcome, Err(Failure::Engine(EngineStopped::ShardDied(_)))), "{outcome:?}");
    assert!(world.http_was_stopped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_shard_that_dies_while_the_last_requests_are_finished_is_the_reason() {
    let mut world = World::new().await;
    let mut signals = Signals::install().expect("signals");
    let _generation = world.generate().await;
    world.shard.die();
    let outcome = world.service.drain(&mut signals, pin!(std::future::pending())).await;
    assert!(matches!(outcome, Err(Failure::Engine(EngineStopped::ShardDied(_)))), "{outcome:?}");
}

#[tokio::test]
async fn an_http_server_that_stops_by_itself_is_the_reason_and_is_not_awaited_again() {
    let world = World::new().await;
    let mut signals = Signals::install().expect("signals");
    world.end_http.send(()).expect("it runs");
    let outcome = world.service.run(&mut signals, std::future::pending()).await;
    assert!(matches!(outcome, Err(Failure::Http(_))), "{outcome:?}");
}
