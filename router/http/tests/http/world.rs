//! A server in this process: a fake shard, a real engine, the router, and a client that waits for events only.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::Response;
use headrace_engine::{Engine, EngineConfig};
use headrace_http::{
    Exporter, Limits, MetricsHandle, Router, ServerInfo, ServerParts, ServerState, Surface, install_metrics,
};
use headrace_scheduler::{Config, PolicyKind, Tokens};
use headrace_shard::{CostModel, FakeHandle, FakeShard, LogicalShard, TokenRule, WarmupLimits};
use headrace_text::chat::{ChatPrompts, ChatTemplates};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::tokenizer::{END, VOCAB_SIZE, ids, tokenizer};

pub const MAX_INPUT: u32 = 100;
pub const MAX_TOTAL: u32 = 128;

pub struct World {
    pub router: Router,
    pub engine: Engine,
    pub shard: FakeShard,
    pub handle: FakeHandle,
}

/// How a world differs from the usual one.
pub struct Setup {
    pub limits: Limits,
    pub surface: Surface,
    pub cors_origins: Vec<HeaderValue>,
    /// The tokens that answers are made of.
    pub choices: Vec<u32>,
    pub pipeline_tag: Option<String>,
    pub served_model_names: Vec<String>,
    pub chat_templates: ChatTemplates,
    /// Texts of messages are kept from becoming special tokens.
    pub guarded: bool,
    pub policy: PolicyKind,
    pub max_batch_size: u32,
    pub traces: Option<Exporter>,
    /// How long steps take.
    pub cost: CostModel,
}

impl Default for Setup {
    /// Answers are of the letters a to z, up to 128 tokens with the prompt.
    fn default() -> Self {
        let limits = Limits {
            max_concurrent_requests: 8,
            max_input_tokens: MAX_INPUT,
            max_total_tokens: MAX_TOTAL,
            validation_workers: 2,
            payload_limit: 300_000,
            ..Limits::default()
        };
        Self {
            limits,
            surface: Surface::default(),
            cors_origins: vec![],
            choices: ids("abcdefghijklmnopqrstuvwxyz"),
            pipeline_tag: None,
            served_model_names: Vec::new(),
            chat_templates: ChatTemplates::default(),
            guarded: false,
            policy: PolicyKind::Fcfs,
            max_batch_size: 8,
            traces: None,
            cost: CostModel::FREE,
        }
    }
}

/// An answer as a client sees it.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl World {
    pub async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let metrics = metrics(&setup.limits);
        let facts = LogicalShard::fake(FakeShard::new()).facts().await.unwrap();
        let facts = headrace_shard::ShardFacts { vocab_size: VOCAB_SIZE, ..facts };
        let rule = TokenRule { choices: Some(setup.choices.into()), eos: None };
        let shard = FakeShard::new().with_facts(facts.clone()).with_rule(rule).with_cost(setup.cost);
        let logical = LogicalShard::fake(shard.clone());
        let limits = WarmupLimits {
            max_batch_size: setup.max_batch_size,
            max_batch_prefill_tokens: Tokens(64),
            max_total_tokens: Some(Tokens(setup.limits.max_total_tokens)),
            blocks: None,
            host_bytes: 0,
        };
        let pool = logical.warmup(&limits).await.unwrap();
        let config = Config {
            block_size: facts.block_size,
            total_blocks: pool.blocks,
            max_batch_size: limits.max_batch_size,
            max_batch_prefill_tokens: limits.max_batch_prefill_tokens,
            max_total_tokens: Tokens(setup.limits.max_total_tokens),
            policy: setup.policy,
            max_concurrent_requests: Some(setup.limits.max_concurrent_requests),
            eos: vec![END],
            ..Config::default()
        };
        let (engine, _task) = Engine::start(EngineConfig::new(config), logical, tokenizer()).await.unwrap();
        let state = ServerState::new(ServerParts {
            engine: engine.clone(),
            tokenizer: tokenizer(),
            chat_prompts: ChatPrompts::new(setup.chat_templates, tokenizer(), setup.guarded),
            limits: setup.limits,
            surface: setup.surface,
            info: ServerInfo { served_model_names: setup.served_model_names, ..info(setup.pipeline_tag) },
            metrics,
            traces: setup.traces,
            cors_origins: setup.cors_origins,
        });
        Self { router: headrace_http::router(state), engine, handle: shard.handle(), shard }
    }

    /// What the model answers to `prompt`, in `count` tokens.
    pub fn expected(&self, prompt: &str, count: usize) -> String {
        let tokens = self.shard.expected_answer(&ids(prompt), count);
        tokenizer().decode(&tokens, true).unwrap()
    }

    /// Sends a request and waits for the answer's headers.
    pub async fn open(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request and waits for the whole answer.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.open(request).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(post(path, body.to_string())).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Listens on a port of this machine until the world goes.
    pub async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(headrace_http::serve(listener, self.router.clone(), std::future::pending()));
        address
    }

    /// Waits until nothing runs or waits, and checks that every block came back.
    pub async fn wait_until_idle(&self) {
        soon(self.engine.idle()).await;
        let snapshot = self.engine.snapshot();
        assert_eq!(snapshot.blocks_free + snapshot.blocks_cached, snapshot.blocks_total, "{snapshot:?}");
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {:?}", self.text))
    }

    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("no error in {}", self.text)).to_owned()
    }

    pub fn error_type(&self) -> String {
        self.json()["error_type"].as_str().unwrap_or_else(|| panic!("no error_type in {}", self.text)).to_owned()
    }

    /// The data of each event.
    pub fn events(&self) -> Vec<Value> {
        let events = self.text.split_terminator("\n\n");
        events.map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no header {name}")).to_str().unwrap()
    }
}

pub fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header("content-type", "application/json").body(body.into()).unwrap()
}

/// A number as JSON shows an `f32`: as few digits as tell it from its neighbours.
pub fn shown(number: f32) -> Value {
    serde_json::from_str(&serde_json::to_string(&number).unwrap()).unwrap()
}

/// What must happen soon: a test that waits in vain fails instead of hanging.
pub async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), event).await.expect("it did not happen")
}

/// One recorder for the process: tests that read it look at differences of names nobody else uses, or at types.
fn metrics(limits: &Limits) -> MetricsHandle {
    static METRICS: OnceLock<MetricsHandle> = OnceLock::new();
    METRICS.get_or_init(|| install_metrics(limits).unwrap()).clone()
}

fn info(model_pipeline_tag: Option<String>) -> ServerInfo {
    ServerInfo {
        model_id: "org/model".into(),
        served_model_names: Vec::new(),
        model_sha: None,
        model_dtype: "float32".into(),
        model_device_type: "cpu".into(),
        model_pipeline_tag,
        version: "0.0.0".into(),
        sha: None,
        docker_label: None,
        compute_type: "cpu".into(),
        scheduling_policy: "fcfs",
        waiting_served_ratio: 0.3,
        max_batch_total_tokens: 4096,
        max_waiting_tokens: 20,
        max_batch_size: Some(8),
    }
}
