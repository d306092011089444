//! What every handler shares: the engine, the tokenizer, the limits, and facts for `/info`.

use std::sync::Arc;

use axum::http::HeaderValue;
use headrace_engine::Engine;
use headrace_telemetry::{Exporter, MetricsHandle};
use headrace_text::Tokenizer;
use headrace_text::chat::ChatPrompts;

use crate::metrics::RequestMetrics;
use crate::openai::envelope::unix_seconds;
use crate::permits::Permits;
use crate::routes::live::Viewers;
use crate::surface::Surface;
use crate::tokenization::Tokenization;
use crate::validation::Model;

/// Limits of requests, checked before they get here. Tokens unless said otherwise.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Generations under way together, running and waiting; each of `best_of` counts. Beyond: 429.
    pub max_concurrent_requests: u32,
    /// The scheduler shares by tenant (policy `fair`): beyond the limit, a tenant below its equal share is still let
    /// through to it, and another one's request ends for it.
    pub fair_tenants: bool,
    /// Highest `best_of`.
    pub max_best_of: u32,
    /// Most entries of `stop`.
    pub max_stop_sequences: u32,
    /// Longest prompt; below `max_total_tokens`.
    pub max_input_tokens: u32,
    /// Prompt and answer together.
    pub max_total_tokens: u32,
    /// Highest `top_n_tokens`.
    pub max_top_n_tokens: u32,
    /// Highest `top_logprobs` of a chat.
    pub max_chat_logprobs: u32,
    /// Highest `logprobs` of a completion.
    pub max_completion_logprobs: u32,
    /// Prompts of one request on routes that take a list; shown by `/info`.
    pub max_client_batch_size: u32,
    /// Texts that are tokenized at the same time, each on a thread of its own.
    pub validation_workers: u32,
    /// Largest body, bytes. Beyond: 413.
    pub payload_limit: usize,
}

impl Default for Limits {
    /// TGI's defaults, and OpenAI's where a field is OpenAI's; as many workers as cores.
    fn default() -> Self {
        Self {
            max_concurrent_requests: 128,
            fair_tenants: false,
            max_best_of: 2,
            max_stop_sequences: 4,
            max_input_tokens: 1023,
            max_total_tokens: 1024,
            max_top_n_tokens: 5,
            max_chat_logprobs: 20,
            max_completion_logprobs: 5,
            max_client_batch_size: 4,
            validation_workers: std::thread::available_parallelism().map_or(2, |cores| cores.get() as u32),
            payload_limit: 2_000_000,
        }
    }
}

/// What `/info` says of the server beside its limits, and the `x-compute-type` header.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    pub model_id: String,
    /// What OpenAI's routes call the model: `/v1/models` lists all, answers carry the first. Empty: its `model_id`.
    pub served_model_names: Vec<String>,
    /// Commit of the model's repository, when it came from one.
    pub model_sha: Option<String>,
    /// Type the forward pass computes in, such as "bfloat16".
    pub model_dtype: String,
    /// Device of the tensors as torch names it, such as "cpu".
    pub model_device_type: String,
    /// Task of the model on the hub; `None` for a local model. `POST /` shows the prompt unless this names another task
    /// than "text-generation".
    pub model_pipeline_tag: Option<String>,
    pub version: String,
    /// Commit this server was built from.
    pub sha: Option<String>,
    pub docker_label: Option<String>,
    /// Value of the `x-compute-type` header, such as "1-nvidia-h200" or "cpu"; printable ASCII, else it is left out.
    pub compute_type: String,
    /// Who is next among waiting requests, such as "fcfs".
    pub scheduling_policy: &'static str,
    /// The scheduler's knobs, as TGI 2 showed them.
    pub waiting_served_ratio: f32,
    pub max_batch_total_tokens: u32,
    pub max_waiting_tokens: u32,
    pub max_batch_size: Option<u32>,
}

impl ServerInfo {
    /// The names of the model on OpenAI's routes, at least one; answers carry the first.
    pub fn model_names(&self) -> &[String] {
        if self.served_model_names.is_empty() { std::slice::from_ref(&self.model_id) } else { &self.served_model_names }
    }

    /// Whether `POST /` shows the prompt when a request doesn't say.
    pub(crate) fn compat_returns_full_text(&self) -> bool {
        self.model_pipeline_tag.as_deref().is_none_or(|task| task == "text-generation")
    }
}

/// What a [`ServerState`] is made of.
pub struct ServerParts {
    pub engine: Engine,
    pub tokenizer: Arc<Tokenizer>,
    pub chat_prompts: ChatPrompts,
    pub limits: Limits,
    pub surface: Surface,
    pub info: ServerInfo,
    /// From [`install_metrics`](crate::install_metrics), which must come first: handles are made here, once.
    pub metrics: MetricsHandle,
    /// Where traces of requests go; `None`: nowhere.
    pub traces: Option<Exporter>,
    /// Origins that browsers may call from; empty: any.
    pub cors_origins: Vec<HeaderValue>,
}

/// Shared by all handlers; cheap to clone.
#[derive(Clone)]
pub struct ServerState(Arc<Shared>);

/// What a [`ServerState`] leads to; for this crate alone.
pub struct Shared {
    pub(crate) engine: Engine,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) chat_prompts: ChatPrompts,
    pub(crate) limits: Limits,
    pub(crate) surface: Surface,
    pub(crate) info: ServerInfo,
    pub(crate) metrics: MetricsHandle,
    pub(crate) traces: Option<Exporter>,
    pub(crate) cors_origins: Vec<HeaderValue>,
    pub(crate) compute_type: Option<HeaderValue>,
    pub(crate) requests: RequestMetrics,
    pub(crate) tokenization: Tokenization,
    /// One permit per generation under way.
    pub(crate) permits: Permits,
    pub(crate) viewers: Viewers,
    /// In seconds since 1970.
    pub(crate) started: u64,
}

impl ServerState {
    pub fn new(parts: ServerParts) -> Self {
        let ServerParts { engine, tokenizer, chat_prompts, limits, surface, info, metrics, traces, cors_origins } =
            parts;
        let tokenization = Tokenization::new(tokenizer.clone(), limits.validation_workers, Permits::most(&limits));
        Self(Arc::new(Shared {
            compute_type: HeaderValue::from_str(&info.compute_type).ok(),
            permits: Permits::new(&limits),
            viewers: Viewers::new(),
            started: unix_seconds(),
            requests: RequestMetrics::new(),
            tokenization,
            engine,
            tokenizer,
            chat_prompts,
            limits,
            surface,
            info,
            metrics,
            traces,
            cors_origins,
        }))
    }
}

impl Shared {
    /// What validation needs to know of the model.
    pub(crate) fn model(&self) -> Model<'_> {
        Model { id: &self.info.model_id, vocab_size: self.tokenizer.vocab_size() }
    }
}

impl std::ops::Deref for ServerState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
