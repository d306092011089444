//! `headrace bench`: what to measure, and which server to start for it.

use std::path::PathBuf;
use std::time::Duration;

use headrace_bench::{Api, Arrivals, Load, Prompt, Workload};

use super::ConfigError;
use crate::flags::BenchFlags;
use crate::flags::bench::{ApiName, AskFlags, LoadFlags};

#[derive(Debug)]
pub struct BenchConfig {
    pub server: Server,
    pub api: Api,
    pub model: String,
    pub api_key: Option<String>,
    pub health_timeout: Duration,
    pub load: Load,
    pub workload: Workload,
    pub parse_events: bool,
    pub json: bool,
}

/// Who is measured.
#[derive(Debug)]
pub enum Server {
    /// Runs already; CPU time is that of a process, if one is named.
    At { url: String, pid: Option<u32> },
    /// Is started for the run.
    Command { words: Vec<String>, log: Option<PathBuf> },
}

/// Stands for a free port in a server's command.
pub const PORT: &str = "{port}";

pub fn check(flags: BenchFlags) -> Result<BenchConfig, ConfigError> {
    let server = if flags.command.is_empty() {
        Server::At { url: flags.target.url, pid: flags.figures.server_pid }
    } else if flags.command.iter().any(|word| word.contains(PORT)) {
        Server::Command { words: flags.command, log: flags.figures.server_log }
    } else {
        return Err(ConfigError::NoPort);
    };
    Ok(BenchConfig {
        server,
        api: match flags.target.api {
            ApiName::Tgi => Api::Tgi,
            ApiName::Openai => Api::Completions,
            ApiName::OpenaiChat => Api::Chat,
        },
        model: flags.target.model,
        api_key: flags.target.api_key,
        health_timeout: Duration::from_secs(flags.target.health_timeout),
        load: load(&flags.load),
        workload: workload(flags.asks),
        parse_events: flags.figures.parse_events,
        json: flags.figures.json,
    })
}

fn load(flags: &LoadFlags) -> Load {
    let arrivals = flags.rate.map_or(Arrivals::Streams(flags.streams), Arrivals::Rate);
    let some = match arrivals {
        _ if flags.duration.is_some() => u64::MAX,
        Arrivals::Streams(streams) => 4 * u64::from(streams),
        Arrivals::Rate(rate) => (4.0 * rate).ceil() as u64,
    };
    Load {
        arrivals,
        requests: flags.requests.unwrap_or(some),
        // More seconds than a clock has are no limit.
        duration: flags.duration.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        warmup: flags.warmup,
        timeout: Duration::from_secs(flags.timeout),
    }
}

fn workload(flags: AskFlags) -> Workload {
    let prompt = flags.prompt.map_or(Prompt::Words(flags.prompt_tokens), Prompt::Text);
    Workload { prompt, output_tokens: flags.output_tokens, seed: flags.seed }
}
