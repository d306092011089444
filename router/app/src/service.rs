//! The service itself: from a connected shard to HTTP, and from a signal or a failure to the end.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headrace_engine::{Engine, EngineConfig, EngineState, EngineTask, TraceFiles};
use headrace_http::{HeaderValue, Limits, ServerInfo, ServerParts, ServerState, install_metrics};
use headrace_scheduler::{PolicyKind, TokenId};
use headrace_shard::{LogicalShard, PoolReport, ShardError, ShardFacts};
use headrace_telemetry::{Exporter, ExporterTask, table};
use headrace_text::Tokenizer;
use headrace_text::chat::ChatPrompts;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::chat_templates;
use crate::config::{ConfigError, HttpConfig, ServiceConfig};
use crate::defaults::{self, Agreed};
use crate::failure::{CutOff, Failure};
use crate::listen::Door;
use crate::machine;
use crate::metrics_port::MetricsPort;
use crate::model::ServedModel;
use crate::ready::Ready;
use crate::same_model::same_model;
use crate::signals::Signals;
use crate::supervise::Death;
use crate::timeline::Timeline;

/// For answers that are complete, or have just failed, to reach their clients.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// For what waits to be exported.
const LAST_TRACES: Duration = Duration::from_secs(2);

/// What a service is started from.
pub struct Plan<'a> {
    pub config: &'a ServiceConfig,
    pub model: Arc<ServedModel>,
    pub door: Door,
    pub timeline: Timeline,
}

/// A service that answers requests.
pub struct Service {
    engine: Engine,
    task: EngineTask,
    http: JoinHandle<io::Result<()>>,
    stop_http: oneshot::Sender<()>,
    /// As long as the service lives.
    _metrics_port: Option<MetricsPort>,
    exporting: Option<ExporterTask>,
    graceful_termination: Duration,
}

/// Starts everything behind a shard that `connect` reaches, and says when it is ready. The tokenizer loads meanwhile.
pub async fn start(
    plan: Plan<'_>,
    connect: impl Future<Output = Result<LogicalShard, ShardError>>,
) -> Result<Service, Failure> {
    let Plan { config, model, door, mut timeline } = plan;
    let reach = async {
        let shard = connect.await?;
        timeline.mark("starting the shard");
        door.front.doing("loading weights");
        let facts = shard.facts().await?;
        timeline.mark("loading weights");
        Ok::<_, Failure>((shard, facts))
    };
    let ((shard, facts), (tokenizer, chat_prompts)) =
        tokio::try_join!(reach, load_text(model.dir.clone(), &config.http))?;
    timeline.mark("waiting for the tokenizer");
    same_model(&model, &tokenizer, &facts)?;
    door.front.doing("warming up");
    let pool = shard.warmup(&defaults::warmup_limits(config, &facts)?).await?;
    timeline.mark("warm-up");

    let eos = known(model.model.eos(|text| tokenizer.token_id(text)), facts.vocab_size);
    if eos.is_empty() {
        tracing::warn!("the model names no end-of-sequence token: answers end at a stop sequence or their length");
    }
    let agreed = defaults::agree(config, &facts, &pool, eos)?;
    let limits = http_limits(config, &agreed);
    let metrics = install_metrics(&limits)?;
    introduce(&model, &facts, &timeline);
    let trace = config.trace.as_deref().map(trace_files).transpose()?;
    let engine_config = EngineConfig { trace, ..EngineConfig::new(agreed.scheduler.clone()) };
    let (engine, task) = Engine::start(engine_config, shard, tokenizer.clone()).await?;
    let (traces, exporting) = export_traces(config)?;
    let state = ServerState::new(ServerParts {
        engine: engine.clone(),
        tokenizer,
        chat_prompts,
        limits,
        surface: config.http.surface.clone(),
        info: server_info(config, &model, &facts, &agreed),
        metrics: metrics.clone(),
        traces,
        cors_origins: cors_origins(config),
    });
    let Door { front, address, http, stop: stop_http } = door;
    front.open(headrace_http::router(state));
    let metrics_port = MetricsPort::open(config.telemetry.prometheus_port, address, metrics).await;
    timeline.mark("engine and HTTP");
    tell(&pool, &facts, &agreed, &timeline);
    let ready = Ready {
        model_id: &model.model_id,
        address,
        dtype: &facts.dtype,
        device: &facts.device,
        pool: agreed.pool,
        pool_bytes: pool.pool_bytes,
        took: timeline.total(),
        asks_for_key: !config.http.surface.api_keys.is_empty(),
        json: config.logs.json,
    };
    ready.announce();
    let graceful_termination = config.graceful_termination;
    Ok(Service { engine, task, http, stop_http, _metrics_port: metrics_port, exporting, graceful_termination })
}

/// Why a service ends.
enum End {
    Signal,
    Failed(Failure),
}

impl Service {
    /// Serves until a signal asks for the end (then it drains), or the shard, the engine or HTTP fails. Ends well when
    /// nobody was cut off.
    pub async fn run(mut self, signals: &mut Signals, death: impl Future<Output = Death>) -> Result<(), Failure> {
        let mut death = pin!(death);
        let exporting = self.exporting.take();
        let outcome = match self.end(signals, death.as_mut()).await {
            End::Signal => self.drain(signals, death).await,
            End::Failed(failure) => Err(failure),
        };
        match outcome {
            // The engine sees the broken connection by itself and fails what ran; its clients should hear of it.
            Err(Failure::Died(_)) => drop(timeout(LAST_ANSWERS, &mut self.task).await),
            // The session is over before the shard is told to end: it has nothing to break off then.
            _ => drop(self.engine.close().await),
        }
        if !matches!(outcome, Err(Failure::Http(_))) {
            self.stop_http().await;
        }
        if let Some(exporting) = exporting {
            exporting.finish(LAST_TRACES).await;
        }
        outcome
    }

    async fn end(&mut self, signals: &mut Signals, death: Pin<&mut impl Future<Output = Death>>) -> End {
        tokio::select! {
            biased; // A dead process explains more than the engine that lost it.
            signal = signals.next() => {
                tracing::info!(
                    "{signal}: finishing what runs within {} s, refusing what is new; a second signal cuts it off",
                    self.graceful_termination.as_secs()
                );
                End::Signal
            }
            death = death => End::Failed(Failure::Died(death)),
            stopped = &mut self.task => End::Failed(Failure::Engine(stopped)),
            ended = &mut self.http => End::Failed(Failure::Http(http_error(ended))),
        }
    }

    /// Takes nothing new and finishes what runs, as long as that may take; then cuts off the rest.
    async fn drain(
        &mut self,
        signals: &mut Signals,
        death: Pin<&mut impl Future<Output = Death>>,
    ) -> Result<(), Failure> {
        self.engine.drain();
        let why = tokio::select! {
            biased;
            () = self.engine.idle() => {
                // It is so, too, when the shard has died and all that ran has failed.
                let died = matches!(self.engine.state(), EngineState::Dead(_));
                return if died { Err(Failure::Engine((&mut self.task).await)) } else { Ok(()) };
            }
            death = death => return Err(Failure::Died(death)),
            stopped = &mut self.task => return Err(Failure::Engine(stopped)),
            signal = signals.next() => CutOff::SecondSignal(signal),
            () = sleep(self.graceful_termination) => CutOff::GraceOver(self.graceful_termination),
        };
        match self.engine.close().await {
            0 => Ok(()),
            requests => Err(Failure::CutOff { requests, why }),
        }
    }

    /// Takes no more connections and lets the last answers reach their clients.
    async fn stop_http(self) {
        let _ = self.stop_http.send(());
        if timeout(LAST_ANSWERS, self.http).await.is_err() {
            tracing::warn!("connections were still open and are cut off");
        }
    }
}

/// End-of-sequence tokens that the model can say.
fn known(mut eos: Vec<TokenId>, vocab_size: u32) -> Vec<TokenId> {
    eos.retain(|&id| {
        let known = id < vocab_size;
        if !known {
            tracing::warn!(
                "eos_token_id {id} is outside the vocabulary of {vocab_size} tokens and is left out; correct \
                 generation_config.json or config.json"
            );
        }
        known
    });
    eos
}

/// The tokenizer, and what makes prompts of chats.
async fn load_text(dir: PathBuf, config: &HttpConfig) -> Result<(Arc<Tokenizer>, ChatPrompts), Failure> {
    let config = config.clone();
    let loading = tokio::task::spawn_blocking(move || {
        let tokenizer = Arc::new(Tokenizer::from_dir(&dir)?);
        let HttpConfig { chat_template, tokenizer_config, no_special_tokens_in_messages, .. } = config;
        let templates = chat_templates::read(&dir, chat_template.as_deref(), tokenizer_config.as_deref());
        let prompts = ChatPrompts::new(templates, tokenizer.clone(), no_special_tokens_in_messages);
        Ok((tokenizer, prompts))
    });
    loading.await.map_err(|error| Failure::Runtime(io::Error::other(error)))?
}

/// Where traces go, and the task that brings them there.
fn export_traces(config: &ServiceConfig) -> Result<(Option<Exporter>, Option<ExporterTask>), Failure> {
    let Some(otlp) = config.telemetry.otlp.clone() else { return Ok((None, None)) };
    let (exporter, task) = Exporter::start(otlp).map_err(ConfigError::from)?;
    Ok((Some(exporter), Some(task)))
}

/// What never changes of a server, as metrics.
fn introduce(model: &ServedModel, facts: &ShardFacts, timeline: &Timeline) {
    let identity = [env!("CARGO_PKG_VERSION"), model.model_id.as_str(), facts.dtype.as_str(), facts.device.as_str()];
    table::SERVER_INFO.of_all(&identity).set(1.0);
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    table::START_TIME.handle().set(since_epoch.saturating_sub(timeline.total()).as_secs_f64());
}

fn trace_files(path: &Path) -> Result<TraceFiles, Failure> {
    TraceFiles::create(path).map_err(|reason| Failure::Trace { path: path.display().to_string(), reason })
}

fn http_limits(config: &ServiceConfig, agreed: &Agreed) -> Limits {
    let limits = &config.limits;
    let usual = Limits::default();
    let likely = |usual| limits.max_top_n_tokens.unwrap_or(usual);
    Limits {
        max_concurrent_requests: limits.max_concurrent_requests,
        fair_tenants: agreed.scheduler.policy == PolicyKind::Fair,
        max_best_of: limits.max_best_of,
        max_stop_sequences: limits.max_stop_sequences,
        max_input_tokens: agreed.max_input.0,
        max_total_tokens: agreed.max_total.0,
        max_top_n_tokens: likely(usual.max_top_n_tokens),
        max_chat_logprobs: likely(usual.max_chat_logprobs),
        max_completion_logprobs: likely(usual.max_completion_logprobs),
        max_client_batch_size: limits.max_client_batch_size,
        validation_workers: config.http.validation_workers,
        payload_limit: config.http.payload_limit,
    }
}

fn server_info(config: &ServiceConfig, model: &ServedModel, facts: &ShardFacts, agreed: &Agreed) -> ServerInfo {
    ServerInfo {
        model_id: model.model_id.clone(),
        served_model_names: config.http.served_model_names.clone(),
        model_sha: model.revision.clone(),
        model_dtype: facts.dtype.clone(),
        model_device_type: facts.device.clone(),
        model_pipeline_tag: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sha: machine::COMMIT.map(str::to_owned),
        docker_label: machine::DOCKER_LABEL.map(str::to_owned),
        compute_type: config.http.compute_type.clone().unwrap_or_else(|| facts.device.clone()),
        scheduling_policy: agreed.scheduler.policy.name(),
        waiting_served_ratio: config.batching.waiting_served_ratio_permille as f32 / 1000.0,
        max_batch_total_tokens: agreed.pool.0,
        max_waiting_tokens: config.batching.max_waiting_tokens,
        max_batch_size: Some(config.batching.max_batch_size),
    }
}

/// `*` anywhere in the list is any origin, which an empty list means.
fn cors_origins(config: &ServiceConfig) -> Vec<HeaderValue> {
    let origins = &config.http.cors_allow_origin;
    if origins.iter().any(|origin| origin == "*") {
        return Vec::new();
    }
    // Checked with the flags: visible ASCII only.
    origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect()
}

fn http_error(ended: Result<io::Result<()>, tokio::task::JoinError>) -> io::Error {
    match ended {
        Ok(Ok(())) => io::Error::other("it stopped accepting connections"),
        Ok(Err(error)) => error,
        Err(error) => io::Error::other(error),
    }
}

/// Logs what came of the start.
fn tell(pool: &PoolReport, facts: &ShardFacts, agreed: &Agreed, timeline: &Timeline) {
    tracing::info!(
        "KV pool: {} blocks of {} tokens, {:.2} GB of {:.2} GB available; a step of {} prompt tokens takes {:.1} ms; \
         max_input_tokens {}, max_total_tokens {}",
        pool.blocks,
        facts.block_size,
        pool.pool_bytes as f64 / 1e9,
        pool.available_bytes as f64 / 1e9,
        agreed.scheduler.max_batch_prefill_tokens,
        pool.step_us as f64 / 1e3,
        agreed.max_input,
        agreed.max_total,
    );
    tracing::info!("start-up took {timeline}");
}

#[cfg(test)]
mod tests;
