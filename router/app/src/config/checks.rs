//! The single checks. Each either proves its claim or names the flags that break it.

use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use headrace_http::{ApiKeys, Surface, VertexAi};
use headrace_scheduler::Tokens;
use headrace_telemetry::OtlpConfig;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::{Batching, ConfigError, HttpConfig, LogConfig, RequestLimits, Rope, ServiceConfig, TelemetryConfig};
use crate::flags::scheduling::{Policy, SchedulingFlags};
use crate::flags::variables::Idle;
use crate::flags::{
    BatchingFlags, FakeFlags, HttpFlags, LimitFlags, MemoryFlags, OppositeFlags, Origins, ProcessFlags, Quantize,
    RopeScaling, SurfaceFlags, TelemetryFlags, Verdict,
};

/// `sun_path` of a Unix socket's address, less the closing zero: Linux has 108, macOS 104.
const SOCKET_PATH_LIMIT: usize = 103;

/// More than any machine has; each costs memory and a place in the scheduler of the system.
const MOST_THREADS: u32 = 1024;

/// Refuses what decides who may ask or read; the rest becomes one warning each.
pub fn foreign(given: &[(&'static str, Verdict)]) -> Result<Vec<String>, ConfigError> {
    given
        .iter()
        .map(|&(flag, verdict)| match verdict {
            Verdict::NoEffect(why) => Ok(format!("--{flag} has no effect: {why}")),
            Verdict::NotAvailable(instead) => Err(ConfigError::NotAvailable { flag, instead }),
        })
        .collect()
}

pub fn idle_variables(idle: &[Idle]) -> impl Iterator<Item = String> {
    idle.iter().map(|Idle { variable, why }| format!("the variable {variable} has no effect: {why}"))
}

/// A method of another server loses nothing when it is left out.
pub fn idle_quantize(method: Option<Quantize>) -> Option<String> {
    method.and_then(Quantize::idle).map(|why| format!("--quantize has no effect: {why}"))
}

/// Numbers that are listed and mean nothing there.
pub fn idle_graphs(rows: Option<&[u32]>, max_batch_size: u32) -> Vec<String> {
    let rows = rows.unwrap_or_default();
    let above = rows.iter().filter(|&&rows| rows > max_batch_size).map(|rows| {
        format!("--cuda-graphs {rows} has no effect: a batch has at most the {max_batch_size} rows of --max-batch-size")
    });
    let beside = (rows.len() > 1 && rows.contains(&0))
        .then(|| "--cuda-graphs 0 has no effect beside other numbers: alone it means no graphs".to_owned());
    above.chain(beside).collect()
}

/// Text Generation Inference's defaults: linear if only the factor is given, and a factor of 1.
pub fn rope(scaling: Option<RopeScaling>, factor: Option<f32>) -> Option<Rope> {
    if scaling.is_none() && factor.is_none() {
        return None;
    }
    Some(Rope { scaling: scaling.unwrap_or(RopeScaling::Linear), factor: factor.unwrap_or(1.0) })
}

/// The scheduling flags, with what their opposites say.
pub fn settle(
    mut flags: SchedulingFlags,
    opposite: &OppositeFlags,
    origins: &Origins,
) -> Result<SchedulingFlags, ConfigError> {
    let prefix = opposite.no_prefix_cache(flags.no_prefix_cache, origins);
    let chunks = opposite.no_chunked_prefill(flags.no_chunked_prefill, origins);
    flags.no_prefix_cache = prefix.map_err(ConfigError::Opposed)?;
    flags.no_chunked_prefill = chunks.map_err(ConfigError::Opposed)?;
    Ok(flags)
}

/// Knobs of a fake shard that is not there.
pub fn idle_fake(flags: &FakeFlags) -> Option<String> {
    let given = [flags.fake_step_us, flags.fake_token_us, flags.fake_row_us].iter().any(|&us| us > 0);
    let idle = given && !flags.fake_shard;
    idle.then(|| "--fake-step-us, --fake-token-us and --fake-row-us have no effect without --fake-shard".to_owned())
}

/// What is written as a path must exist; anything else may be a hub id, which only the shard's package can tell.
pub fn model_exists(model_id: &str) -> Result<(), ConfigError> {
    if model_id.is_empty() {
        return Err(ConfigError::NoModel);
    }
    let is_path = ["/", "./", "../", "~"].iter().any(|start| model_id.starts_with(start))
        || model_id.to_ascii_lowercase().ends_with(".gguf");
    if is_path { file_exists("--model-id", Some(Path::new(model_id))) } else { Ok(()) }
}

pub fn file_exists(flag: &'static str, path: Option<&Path>) -> Result<(), ConfigError> {
    match path {
        Some(path) if !path.exists() => Err(ConfigError::Missing { flag, path: path.to_owned() }),
        _ => Ok(()),
    }
}

pub fn directory_exists(flag: &'static str, path: &Path) -> Result<(), ConfigError> {
    file_exists(flag, Some(path))?;
    if path.is_dir() { Ok(()) } else { Err(ConfigError::NotADirectory { flag, path: path.to_owned() }) }
}

pub fn at_least_one(flag: &'static str, value: Option<u32>) -> Result<(), ConfigError> {
    if value == Some(0) { Err(ConfigError::Zero { flag }) } else { Ok(()) }
}

pub fn threads(asked: Option<u32>) -> Result<(), ConfigError> {
    at_least_one("--num-threads", asked)?;
    match asked {
        Some(asked) if asked > MOST_THREADS => Err(ConfigError::TooManyThreads { asked, limit: MOST_THREADS }),
        _ => Ok(()),
    }
}

/// A revision names a state of a repository on the hub; nothing else has several.
pub fn idle_revision(model_id: &str, revision: Option<&str>) -> Option<String> {
    let local = Path::new(model_id).exists() || model_id.to_ascii_lowercase().ends_with(".gguf");
    let what = match model_id {
        "embedded" => "the embedded model has one state",
        _ if local => "files on this machine have one state",
        _ => return None,
    };
    revision.map(|_| format!("--revision has no effect: {what}"))
}

pub fn socket_path_fits(prefix: Option<&Path>) -> Result<(), ConfigError> {
    const RANK: usize = "-0".len();
    match prefix {
        Some(path) if path.as_os_str().as_bytes().len() + RANK > SOCKET_PATH_LIMIT => {
            Err(ConfigError::SocketPathTooLong { path: path.to_owned(), limit: SOCKET_PATH_LIMIT })
        }
        _ => Ok(()),
    }
}

/// What `serve` and `router` share.
pub struct ServiceFlags {
    pub limits: LimitFlags,
    pub batching: BatchingFlags,
    pub memory: MemoryFlags,
    pub scheduling: SchedulingFlags,
    pub http: HttpFlags,
    pub telemetry: TelemetryFlags,
    pub process: ProcessFlags,
}

pub fn service(flags: ServiceFlags, mut warnings: Vec<String>) -> Result<ServiceConfig, ConfigError> {
    let ServiceFlags { limits, batching, memory, scheduling, http, telemetry, process } = flags;
    at_least_one("--step-timeout", Some(process.step_timeout.min(1) as u32))?;
    let limits = request_limits(&limits)?;
    warnings.extend(self::scheduling(&scheduling, &batching)?);
    let batching = self::batching(&batching, limits.max_total_tokens, !scheduling.no_chunked_prefill)?;
    prompt_fits_a_step(&limits, &batching, &scheduling)?;
    Ok(ServiceConfig {
        limits,
        batching,
        swap_bytes: memory.swap_space,
        scheduling,
        http: self::http(http)?,
        telemetry: self::telemetry(telemetry)?,
        logs: logs(&process)?,
        graceful_termination: Duration::from_secs(process.graceful_termination_timeout),
        step_timeout: Duration::from_secs(process.step_timeout),
        trace: process.trace,
        log_environment: process.env,
        warnings,
    })
}

fn request_limits(flags: &LimitFlags) -> Result<RequestLimits, ConfigError> {
    let max_input = match (flags.max_input_tokens, flags.max_input_length) {
        (Some(_), Some(_)) => return Err(ConfigError::BothMaxInput),
        (new, old) => new.or(old),
    };
    at_least_one("--max-concurrent-requests", Some(flags.max_concurrent_requests))?;
    at_least_one("--max-input-tokens", max_input)?;
    at_least_one("--max-total-tokens", flags.max_total_tokens)?;
    if flags.max_total_tokens == Some(1) {
        return Err(ConfigError::TotalOfOne);
    }
    at_least_one("--max-best-of", Some(flags.max_best_of))?;
    at_least_one("--max-client-batch-size", Some(flags.max_client_batch_size))?;
    if let (Some(input), Some(total)) = (max_input, flags.max_total_tokens)
        && input >= total
    {
        return Err(ConfigError::InputNotBelowTotal { input, total });
    }
    Ok(RequestLimits {
        max_concurrent_requests: flags.max_concurrent_requests,
        max_input_tokens: max_input.map(Tokens),
        max_total_tokens: flags.max_total_tokens.map(Tokens),
        max_best_of: flags.max_best_of,
        max_stop_sequences: flags.max_stop_sequences,
        max_top_n_tokens: flags.max_top_n_tokens,
        max_client_batch_size: flags.max_client_batch_size,
    })
}

/// Whoever sets both sizes and wants whole prompts gets what was asked for, or hears that it cannot be.
fn prompt_fits_a_step(
    limits: &RequestLimits,
    batching: &Batching,
    scheduling: &SchedulingFlags,
) -> Result<(), ConfigError> {
    match (limits.max_input_tokens, batching.max_batch_prefill_tokens) {
        (Some(input), Some(prefill)) if scheduling.no_chunked_prefill && prefill < input => {
            Err(ConfigError::PrefillBelowInput { prefill: prefill.0, input: input.0 })
        }
        _ => Ok(()),
    }
}

/// Refuses what contradicts itself; what has no effect is a warning.
fn scheduling(flags: &SchedulingFlags, batching: &BatchingFlags) -> Result<Vec<String>, ConfigError> {
    if flags.no_chunked_prefill && flags.target_itl_ms.is_some() {
        return Err(ConfigError::TargetWithoutChunks);
    }
    let rows = rows(batching);
    if let Some(group) = flags.group_size.filter(|&group| group > rows) {
        return Err(ConfigError::GroupAboveRows { group, rows });
    }
    let idle = [
        (
            flags.group_size.is_some(),
            Policy::Static,
            "--group-size has no effect: only --scheduling-policy static makes groups",
        ),
        (
            flags.window_ms.is_some(),
            Policy::Dynamic,
            "--window-ms has no effect: only --scheduling-policy dynamic collects",
        ),
    ];
    let idle = idle.iter().filter(|(given, policy, _)| *given && flags.scheduling_policy != *policy);
    Ok(idle.map(|&(_, _, warning)| warning.to_owned()).collect())
}

/// `chunked`: prompts are computed in chunks.
pub fn batching(flags: &BatchingFlags, max_total: Option<Tokens>, chunked: bool) -> Result<Batching, ConfigError> {
    at_least_one("--max-batch-size", flags.max_batch_size)?;
    at_least_one("--max-batch-prefill-tokens", flags.max_batch_prefill_tokens)?;
    at_least_one("--max-batch-total-tokens", flags.max_batch_total_tokens)?;
    if let Some(pool) = flags.max_batch_total_tokens {
        if let Some(total) = max_total.filter(|total| total.0 > pool) {
            return Err(ConfigError::PoolBelowTotal { pool, total: total.0 });
        }
        if let Some(prefill) = flags.max_batch_prefill_tokens.filter(|&prefill| prefill > pool) {
            return Err(ConfigError::PrefillAbovePool { prefill, pool });
        }
    }
    let (waiting_served_ratio_permille, max_waiting_tokens) = patience(flags, chunked)?;
    Ok(Batching {
        max_batch_size: rows(flags),
        max_batch_prefill_tokens: prompt_tokens(flags)?.map(Tokens),
        pool_tokens: flags.max_batch_total_tokens.map(Tokens),
        waiting_served_ratio_permille,
        max_waiting_tokens,
        preempt_once_seed: flags.debug_preempt_once_seed,
    })
}

/// Rows of the batch. vLLM, too, takes fewer than usual where its budget of a step is small.
fn rows(flags: &BatchingFlags) -> u32 {
    const USUAL_ROWS: u32 = 256;
    let half = flags.max_num_batched_tokens.map_or(USUAL_ROWS, |budget| (budget / 2).max(1));
    flags.max_batch_size.unwrap_or(USUAL_ROWS.min(half))
}

/// Prompt tokens of a step. vLLM's budget counts decode rows too: what is left when all of them decode, so that no step
/// is larger than asked.
fn prompt_tokens(flags: &BatchingFlags) -> Result<Option<u32>, ConfigError> {
    let (prompt, Some(budget)) = (flags.max_batch_prefill_tokens, flags.max_num_batched_tokens) else {
        return Ok(flags.max_batch_prefill_tokens);
    };
    if prompt.is_some() {
        return Err(ConfigError::Contradiction("--max-batch-prefill-tokens", "--max-num-batched-tokens"));
    }
    match budget.checked_sub(rows(flags)) {
        None | Some(0) => Err(ConfigError::NoTokenBesideRows { budget, rows: rows(flags) }),
        left => Ok(left),
    }
}

/// Ratio (in thousandths) and steps after which newcomers are admitted. Either is enough, so a lone one would change
/// nothing beside a 0: the other is then what Text Generation Inference's launcher takes, and so are both where a
/// newcomer's prompt pauses everybody.
fn patience(flags: &BatchingFlags, chunked: bool) -> Result<(u32, u32), ConfigError> {
    const LONE_STEPS_RATIO: u32 = 300;
    const LONE_RATIO_STEPS: u32 = 20;
    Ok(match (flags.waiting_served_ratio.map(permille).transpose()?, flags.max_waiting_tokens) {
        (None, None) if chunked => (0, 0),
        (ratio, steps) => (ratio.unwrap_or(LONE_STEPS_RATIO), steps.unwrap_or(LONE_RATIO_STEPS)),
    })
}

/// The scheduler decides in whole numbers: 1.2 becomes 1200.
fn permille(ratio: f32) -> Result<u32, ConfigError> {
    if !(0.0..=1000.0).contains(&ratio) {
        return Err(ConfigError::Ratio { given: ratio.to_string() });
    }
    Ok((ratio * 1000.0).round() as u32)
}

fn http(flags: HttpFlags) -> Result<HttpConfig, ConfigError> {
    file_exists("--tokenizer-config-path", flags.tokenizer_config_path.as_deref())?;
    file_exists("--chat-template", flags.chat_template.as_deref())?;
    at_least_one("--validation-workers", Some(flags.validation_workers))?;
    at_least_one("--payload-limit", Some(flags.payload_limit.min(1) as u32))?;
    let origins = match flags.allowed_origins {
        Some(_) if !flags.cors_allow_origin.is_empty() => {
            return Err(ConfigError::Contradiction("--allowed-origins", "--cors-allow-origin"));
        }
        Some(origins) => origins.0,
        None => flags.cors_allow_origin,
    };
    if let Some(given) = origins.iter().find(|origin| !is_origin(origin)) {
        return Err(ConfigError::Origin { given: given.clone() });
    }
    Ok(HttpConfig {
        address: address(&flags.hostname)?,
        port: flags.port,
        served_model_names: flags.served_model_name,
        cors_allow_origin: origins,
        payload_limit: usize::try_from(flags.payload_limit).unwrap_or(usize::MAX),
        validation_workers: flags.validation_workers,
        tokenizer_config: flags.tokenizer_config_path,
        compute_type: flags.compute_type,
        surface: surface(&flags.surface)?,
        chat_template: flags.chat_template,
        no_special_tokens_in_messages: flags.no_special_tokens_in_messages,
    })
}

fn surface(flags: &SurfaceFlags) -> Result<Surface, ConfigError> {
    at_least_one("--request-timeout", flags.request_timeout)?;
    for (number, key) in (1..).zip(&flags.api_key) {
        // What a header can hold, less the spaces that it may lose.
        if key.expose().is_empty() || !key.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError::ApiKey { number });
        }
    }
    let ping = Duration::from_secs(flags.sse_ping_interval);
    Ok(Surface {
        api_keys: ApiKeys::new(flags.api_key.iter().map(|key| key.expose())),
        sse_ping: (!ping.is_zero()).then_some(ping),
        request_timeout: flags.request_timeout.map(|seconds| Duration::from_secs(seconds.into())),
        kserve: flags.kserve,
        vertex_ai: VertexAi { predict: flags.aip_predict_route.clone(), health: flags.aip_health_route.clone() },
    })
}

fn is_origin(text: &str) -> bool {
    let printable = text.bytes().all(|byte| byte.is_ascii_graphic()); // what a header can hold
    text == "*"
        || printable && text.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && !host.is_empty())
}

fn address(hostname: &str) -> Result<IpAddr, ConfigError> {
    if let Ok(address) = hostname.parse() {
        return Ok(address);
    }
    let unknown = |reason| ConfigError::Hostname { given: hostname.to_owned(), reason };
    let mut found = (hostname, 0).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    found.next().map(|address| address.ip()).ok_or_else(|| unknown("it has no address".to_owned()))
}

fn telemetry(flags: TelemetryFlags) -> Result<TelemetryConfig, ConfigError> {
    let otlp = flags.otlp_endpoint.map(|endpoint| OtlpConfig {
        endpoint,
        service_name: flags.otlp_service_name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    otlp.as_ref().map_or(Ok(()), OtlpConfig::check)?;
    Ok(TelemetryConfig { prometheus_port: flags.prometheus_port, otlp })
}

fn logs(flags: &ProcessFlags) -> Result<LogConfig, ConfigError> {
    let given = &flags.log_level;
    let bad = |reason| ConfigError::LogLevel { given: given.clone(), reason };
    // The filter takes a word that is no level for a module, and would then log nothing at all.
    let mut parts = given.split(',').map(str::trim);
    if let Some(word) = parts.find(|part| !part.contains('=') && part.parse::<LevelFilter>().is_err()) {
        return Err(bad(format!("`{word}` is no level")));
    }
    EnvFilter::builder().parse(given).map_err(|error| bad(error.to_string()))?;
    Ok(LogConfig { json: flags.json_output, filter: given.clone(), colors: flags.log_colorize })
}
