//! Flags, checked against each other and against this machine: the one value that everything else is built from.
//!
//! Checking starts nothing and changes nothing. What only the loaded model can tell (its context, the pool's size) is
//! checked in `defaults`.

pub mod bench;
mod checks;
mod error;
mod ranks;
mod simulate;
mod what_if;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use headrace_http::Surface;
use headrace_scheduler::Tokens;
use headrace_shard::ShardAddress;
use headrace_telemetry::OtlpConfig;

pub use bench::{BenchConfig, Server};
use checks::ServiceFlags;
pub use error::ConfigError;
pub use simulate::{Cost, Show, SimulateConfig, Traffic};
pub use what_if::Changes;

use crate::flags::surface::Secret;
use crate::flags::variables::Idle;
use crate::flags::{
    AttentionBackend, Command, ComputeFlags, Device, Dtype, FakeFlags, Flags, ModelFlags, Origins, Quantize,
    RopeScaling, RouterFlags, SchedulingFlags, ServeFlags, ShardFlags, WarmFlags,
};

/// What a command runs with.
#[derive(Debug)]
pub enum Config {
    Serve(Box<ServeConfig>),
    Router(Box<RouterConfig>),
    Simulate(Box<SimulateConfig>),
    Bench(Box<BenchConfig>),
    Warm(Box<WarmConfig>),
}

/// `headrace warm`: prepare a model, and compile its kernels.
#[derive(Debug)]
pub struct WarmConfig {
    pub model: ModelSource,
    pub compute: ComputeConfig,
    pub ranks: u32,
    pub targets: Vec<String>,
}

/// `headrace serve`: prepare a model, start its shard, serve.
#[derive(Debug)]
pub struct ServeConfig {
    pub model: ModelSource,
    pub shard: ShardConfig,
    pub compute: ComputeConfig,
    pub service: ServiceConfig,
}

/// Which model, as the user named it, and where its files are kept. `None`: the shard package's default.
#[derive(Debug)]
pub struct ModelSource {
    pub model_id: String,
    pub revision: Option<String>,
    pub cache_dir: Option<PathBuf>,
    pub hub_cache: Option<PathBuf>,
    pub hub_token: Option<Secret>,
}

/// How the model is computed. `None`: the shard's own default.
#[derive(Debug)]
pub struct ComputeConfig {
    pub python: Option<PathBuf>,
    pub dtype: Dtype,
    /// `None`: weights have the type `dtype`.
    pub quantize: Option<&'static str>,
    /// `None`: cached keys and values have the type `dtype`.
    pub kv_cache_dtype: Option<&'static str>,
    pub attention_backend: AttentionBackend,
    /// A sequence's bits depend on its own tokens only.
    pub batch_invariant: bool,
    pub block_size: Option<Tokens>,
    /// Where compiled kernels are kept.
    pub kernel_cache: Option<PathBuf>,
    /// Stretches the positions instead of what config.json says.
    pub rope: Option<Rope>,
}

/// How the shards' processes are started.
#[derive(Debug)]
pub struct ShardConfig {
    /// That hold the model together; at least one.
    pub ranks: u32,
    /// Where they meet.
    pub master_addr: String,
    /// `None`: any free one.
    pub master_port: Option<u16>,
    pub device: Device,
    /// Of all ranks together.
    pub num_threads: u32,
    /// Of a GPU, for everything together.
    pub memory_fraction: f32,
    /// Rows of the decode steps that are recorded; `None`: the shard's choice.
    pub cuda_graphs: Option<Vec<u32>>,
    /// Prefix of the socket's path; `None`: a fresh private directory.
    pub uds_prefix: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    pub scaling: RopeScaling,
    pub factor: f32,
}

/// `headrace router`: serve with shards that run elsewhere.
#[derive(Debug)]
pub struct RouterConfig {
    pub model_dir: PathBuf,
    pub shards: Shards,
    pub service: ServiceConfig,
}

#[derive(Debug)]
pub enum Shards {
    /// In rank order; at least one.
    At(Vec<ShardAddress>),
    Fake(FakeFlags),
}

/// What both commands share: everything about requests, batching, HTTP and the process.
#[derive(Debug)]
pub struct ServiceConfig {
    pub limits: RequestLimits,
    pub batching: Batching,
    /// Host memory of each shard for swapped KV, bytes. `None`: by the shard's device.
    pub swap_bytes: Option<u64>,
    /// Each value is in its range; `defaults` puts them onto the sizes that are settled there.
    pub scheduling: SchedulingFlags,
    pub http: HttpConfig,
    pub telemetry: TelemetryConfig,
    pub logs: LogConfig,
    pub graceful_termination: Duration,
    pub step_timeout: Duration,
    /// Where the scheduler's trace goes.
    pub trace: Option<PathBuf>,
    /// Log what this runs on.
    pub log_environment: bool,
    /// One sentence for each flag that was accepted without effect.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct RequestLimits {
    pub max_concurrent_requests: u32,
    /// `None`: one less than `max_total_tokens`.
    pub max_input_tokens: Option<Tokens>,
    /// `None`: what the model and the pool allow.
    pub max_total_tokens: Option<Tokens>,
    pub max_best_of: u32,
    pub max_stop_sequences: u32,
    /// `None`: what the API of each route allows.
    pub max_top_n_tokens: Option<u32>,
    pub max_client_batch_size: u32,
}

#[derive(Clone, Debug)]
pub struct Batching {
    pub max_batch_size: u32,
    /// `None`: by the shard's device.
    pub max_batch_prefill_tokens: Option<Tokens>,
    /// `None`: what memory allows.
    pub pool_tokens: Option<Tokens>,
    pub waiting_served_ratio_permille: u32,
    pub max_waiting_tokens: u32,
    pub preempt_once_seed: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct HttpConfig {
    pub address: IpAddr,
    pub port: u16,
    /// Empty: the model's id.
    pub served_model_names: Vec<String>,
    /// Empty: any origin.
    pub cors_allow_origin: Vec<String>,
    /// Bytes.
    pub payload_limit: usize,
    pub validation_workers: u32,
    pub tokenizer_config: Option<PathBuf>,
    /// `None`: the shard's device.
    pub compute_type: Option<String>,
    /// Keys are digests here already.
    pub surface: Surface,
    /// Instead of the model's own.
    pub chat_template: Option<PathBuf>,
    pub no_special_tokens_in_messages: bool,
}

#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    /// 0: any free one.
    pub prometheus_port: u16,
    /// `None`: traces go nowhere.
    pub otlp: Option<OtlpConfig>,
}

#[derive(Clone, Debug)]
pub struct LogConfig {
    pub json: bool,
    /// Level, or a list of `module=level`.
    pub filter: String,
    /// `None`: on a terminal.
    pub colors: Option<bool>,
}

/// Checks everything that can be known before anything starts.
pub fn check(flags: Flags) -> Result<Config, ConfigError> {
    let Flags { command, origins, idle_variables, visible_gpus } = flags;
    match command {
        Command::Serve(flags) => {
            check_serve(*flags, &origins, &idle_variables, visible_gpus.as_deref()).map(Box::new).map(Config::Serve)
        }
        Command::Router(flags) => check_router(*flags, &origins, &idle_variables).map(Box::new).map(Config::Router),
        Command::Simulate(flags) => simulate::check(*flags).map(Box::new).map(Config::Simulate),
        Command::Bench(flags) => bench::check(*flags).map(Box::new).map(Config::Bench),
        Command::Warm(flags) => check_warm(*flags).map(Box::new).map(Config::Warm),
    }
}

impl Config {
    /// What a server runs with; a simulation and a client have no log and nothing to listen on.
    pub fn service(&self) -> Option<&ServiceConfig> {
        match self {
            Self::Serve(config) => Some(&config.service),
            Self::Router(config) => Some(&config.service),
            Self::Simulate(_) | Self::Bench(_) | Self::Warm(_) => None,
        }
    }
}

fn check_serve(
    flags: ServeFlags,
    origins: &Origins,
    idle: &[Idle],
    visible_gpus: Option<&str>,
) -> Result<ServeConfig, ConfigError> {
    let mut warnings = checks::foreign(&flags.foreign.given)?;
    warnings.extend(checks::idle_variables(idle));
    warnings.extend(checks::idle_revision(&flags.model.model_id, flags.model.revision.as_deref()));
    warnings.extend(checks::idle_quantize(flags.compute.quantize));
    let (model, compute) = model_and_compute(flags.model, flags.compute)?;
    let shard = shard(flags.shard, visible_gpus)?;
    let scheduling = checks::settle(flags.scheduling, &flags.opposite, origins)?;
    let service = ServiceFlags {
        limits: flags.limits,
        batching: flags.batching,
        memory: flags.memory,
        scheduling,
        http: flags.http,
        telemetry: flags.telemetry,
        process: flags.process,
    };
    let mut service = checks::service(service, warnings)?;
    service.warnings.extend(checks::idle_graphs(shard.cuda_graphs.as_deref(), service.batching.max_batch_size));
    Ok(ServeConfig { model, shard, compute, service })
}

fn check_warm(flags: WarmFlags) -> Result<WarmConfig, ConfigError> {
    checks::at_least_one("--num-shard", Some(flags.num_shard))?;
    let (model, compute) = model_and_compute(flags.model, flags.compute)?;
    Ok(WarmConfig { model, compute, ranks: flags.num_shard, targets: flags.target })
}

fn model_and_compute(model: ModelFlags, compute: ComputeFlags) -> Result<(ModelSource, ComputeConfig), ConfigError> {
    checks::model_exists(&model.model_id)?;
    checks::at_least_one("--block-size", compute.block_size)?;
    checks::file_exists("--python", compute.python.as_deref())?;
    let kernel_cache = model.cache_dir.as_ref().map(|directory| directory.join("kernels"));
    let model = ModelSource {
        model_id: model.model_id,
        revision: model.revision,
        cache_dir: model.cache_dir,
        hub_cache: model.huggingface_hub_cache,
        hub_token: model.hf_token,
    };
    let compute = ComputeConfig {
        python: compute.python,
        dtype: compute.dtype,
        quantize: compute.quantize.and_then(Quantize::name),
        kv_cache_dtype: compute.kv_cache_dtype.name(),
        attention_backend: compute.attention_backend,
        batch_invariant: compute.batch_invariant,
        block_size: compute.block_size.map(Tokens),
        kernel_cache,
        rope: checks::rope(compute.rope_scaling, compute.rope_factor),
    };
    Ok((model, compute))
}

fn shard(flags: ShardFlags, visible_gpus: Option<&str>) -> Result<ShardConfig, ConfigError> {
    checks::threads(flags.num_threads)?;
    checks::socket_path_fits(flags.shard_uds_path.as_deref())?;
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    Ok(ShardConfig {
        ranks: ranks::settle(flags.num_shard, flags.sharded, flags.device, || ranks::count_gpus(visible_gpus))?,
        master_addr: flags.master_addr,
        master_port: flags.master_port,
        device: flags.device,
        num_threads: flags.num_threads.unwrap_or_else(cores),
        memory_fraction: flags.cuda_memory_fraction,
        cuda_graphs: flags.cuda_graphs,
        uds_prefix: flags.shard_uds_path,
    })
}

fn check_router(flags: RouterFlags, origins: &Origins, idle: &[Idle]) -> Result<RouterConfig, ConfigError> {
    let mut warnings = checks::foreign(&flags.foreign.given)?;
    warnings.extend(checks::idle_variables(idle));
    checks::directory_exists("--model-id", &flags.model.model_id)?;
    warnings.extend(checks::idle_revision(&flags.model.model_id.to_string_lossy(), flags.model.revision.as_deref()));
    checks::at_least_one("--block-size", Some(flags.fake.block_size))?;
    warnings.extend(checks::idle_fake(&flags.fake));
    let shards = shards(flags.model.shards, flags.model.master_shard_uds_path, flags.fake)?;
    let scheduling = checks::settle(flags.scheduling, &flags.opposite, origins)?;
    let service = ServiceFlags {
        limits: flags.limits,
        batching: flags.batching,
        memory: flags.memory,
        scheduling,
        http: flags.http,
        telemetry: flags.telemetry,
        process: flags.process,
    };
    let service = checks::service(service, warnings)?;
    Ok(RouterConfig { model_dir: flags.model.model_id, shards, service })
}

fn shards(at: Vec<ShardAddress>, master: Option<PathBuf>, fake: FakeFlags) -> Result<Shards, ConfigError> {
    match (at.is_empty(), master, fake.fake_shard) {
        (true, None, true) => Ok(Shards::Fake(fake)),
        (false, None, false) => Ok(Shards::At(at)),
        (true, Some(path), false) => Ok(Shards::At(vec![ShardAddress::Unix(path)])),
        (true, None, false) => Err(ConfigError::NoShards),
        (false, None, true) => Err(ConfigError::Contradiction("--shards", "--fake-shard")),
        (true, Some(_), true) => Err(ConfigError::Contradiction("--master-shard-uds-path", "--fake-shard")),
        (false, Some(_), _) => Err(ConfigError::Contradiction("--master-shard-uds-path", "--shards")),
    }
}

#[cfg(test)]
mod tests;
