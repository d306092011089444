//! `headrace bench`: what to measure, and which server to start for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headrace_bench::{Api, Arrivals, Axis, Gaps, Limits, Load};

use super::ConfigError;
use crate::flags::BenchFlags;
use crate::flags::bench::{ApiName, ArrivalsName, AskFlags, LoadFlags, SweepLoads, WorkloadName};

#[derive(Debug)]
pub struct BenchConfig {
    pub server: Server,
    pub api: Api,
    pub model: String,
    pub api_key: Option<String>,
    pub health_timeout: Duration,
    pub runs: Runs,
    pub span: Span,
    pub requests: Requests,
    pub limits: Limits,
    pub parse_events: bool,
    pub json: Option<Sink>,
    pub html: Option<PathBuf>,
}

/// Who is measured.
#[derive(Debug)]
pub enum Server {
    /// Runs already; CPU time is that of a process, if one is named.
    At { url: String, pid: Option<u32> },
    /// Is started for the run.
    Command { words: Vec<String>, log: Option<PathBuf> },
}

/// Under which load.
#[derive(Debug, PartialEq)]
pub enum Runs {
    /// `None`: at the times that the workload says, or else with [`STREAMS`].
    One(Option<Arrivals>),
    Sweep(Axis, Vec<Arrivals>),
}

/// How long each run is.
#[derive(Debug)]
pub struct Span {
    /// `None`: as many as the load and the workload suggest.
    pub requests: Option<u64>,
    pub duration: Option<Duration>,
    pub warmup: u64,
    pub timeout: Duration,
}

/// What is asked. Its files have not been read yet.
#[derive(Debug)]
pub struct Requests {
    pub what: What,
    pub tokenizer: Option<PathBuf>,
    pub seed: u64,
}

#[derive(Debug)]
pub enum What {
    /// A prompt for all.
    Same {
        prompt: String,
        output_tokens: u32,
    },
    Custom {
        prompt_tokens: u32,
        output_tokens: u32,
    },
    Named(&'static str, headrace_bench::Shape),
    File(PathBuf),
}

/// Where a text goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Sink {
    StandardOutput,
    File(PathBuf),
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
        runs: runs(&flags.load)?,
        span: Span {
            requests: flags.load.requests,
            // More seconds than a clock has are no limit.
            duration: flags.load.duration.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            warmup: flags.load.warmup,
            timeout: Duration::from_secs(flags.load.timeout),
        },
        requests: requests(flags.asks)?,
        limits: Limits { ttft_ms: flags.figures.slo_ttft, itl_ms: flags.figures.slo_itl },
        parse_events: flags.figures.parse_events,
        json: flags.figures.json.map(Sink::from),
        html: flags.figures.html,
    })
}

fn runs(flags: &LoadFlags) -> Result<Runs, ConfigError> {
    let at = |per_second, gaps| Arrivals::Rate { per_second, gaps };
    let gaps = gaps(flags)?;
    let given = flags.arrivals.is_some();
    match (&flags.sweep, flags.rate) {
        (Some(SweepLoads::Rates(rates)), _) => {
            Ok(Runs::Sweep(Axis::Rate, rates.iter().map(|&rate| at(rate, gaps)).collect()))
        }
        (None, Some(rate)) => Ok(Runs::One(Some(at(rate, gaps)))),
        _ if given => Err(ConfigError::ArrivalsOfClosedLoop),
        (Some(SweepLoads::Streams(streams)), _) => {
            Ok(Runs::Sweep(Axis::Concurrency, streams.iter().map(|&streams| Arrivals::Streams(streams)).collect()))
        }
        (None, None) => Ok(Runs::One(flags.streams.map(Arrivals::Streams))),
    }
}

fn gaps(flags: &LoadFlags) -> Result<Gaps, ConfigError> {
    match (flags.arrivals, flags.burstiness) {
        (Some(ArrivalsName::Bursty), shape) => Ok(Gaps::Bursty(shape.unwrap_or(BURSTINESS))),
        (_, Some(_)) => Err(ConfigError::BurstinessWithoutBursts),
        (Some(ArrivalsName::Even), None) => Ok(Gaps::Even),
        (Some(ArrivalsName::Poisson) | None, None) => Ok(Gaps::Poisson),
    }
}

fn requests(flags: AskFlags) -> Result<Requests, ConfigError> {
    let lengths = [
        ("--prompt", flags.prompt.is_some()),
        ("--prompt-tokens", flags.prompt_tokens.is_some()),
        ("--output-tokens", flags.output_tokens.is_some()),
    ];
    let lengths = lengths.into_iter().find_map(|(flag, given)| given.then_some(flag));
    let what = match (flags.workload, lengths) {
        (WorkloadName::Custom, _) => {
            let output_tokens = flags.output_tokens.unwrap_or(OUTPUT_TOKENS);
            match flags.prompt {
                Some(prompt) => What::Same { prompt, output_tokens },
                None => What::Custom { prompt_tokens: flags.prompt_tokens.unwrap_or(PROMPT_TOKENS), output_tokens },
            }
        }
        (_, Some(flag)) => return Err(ConfigError::LengthsOfWorkload { flag }),
        (WorkloadName::Named(name, shape), None) => What::Named(name, shape),
        (WorkloadName::File(path), None) => What::File(path),
    };
    Ok(Requests { what, tokenizer: flags.tokenizer, seed: flags.seed })
}

impl Runs {
    pub fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Sweep(_, loads) => loads.len(),
        }
    }
}

impl Span {
    /// A run of this length. `listed`: how many requests the workload has, if it is a file.
    pub fn load(&self, arrivals: Arrivals, listed: Option<u64>) -> Load {
        let some = match (&arrivals, listed) {
            (Arrivals::At(times), _) => times.len() as u64,
            _ if self.duration.is_some() => u64::MAX,
            (_, Some(listed)) => listed,
            (Arrivals::Streams(streams), None) => 4 * u64::from(*streams),
            (Arrivals::Rate { per_second, .. }, None) => (4.0 * per_second).ceil() as u64,
        };
        Load {
            arrivals,
            requests: self.requests.unwrap_or(some),
            duration: self.duration,
            warmup: self.warmup,
            timeout: self.timeout,
        }
    }
}

impl From<PathBuf> for Sink {
    fn from(path: PathBuf) -> Self {
        if path == Path::new("-") { Self::StandardOutput } else { Self::File(path) }
    }
}

/// Of a closed loop, where nothing says another number.
pub const STREAMS: u32 = 64;
const PROMPT_TOKENS: u32 = 32;
const OUTPUT_TOKENS: u32 = 256;
/// Gaps whose standard deviation is twice their mean.
const BURSTINESS: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;

    fn span(requests: Option<u64>, duration: Option<Duration>) -> Span {
        Span { requests, duration, warmup: 0, timeout: Duration::from_secs(1) }
    }

    #[test]
    fn a_run_has_as_many_requests_as_asked_or_as_its_load_suggests() {
        let rate = || Arrivals::Rate { per_second: 2.5, gaps: Gaps::Poisson };
        let requests = |span: Span, arrivals, listed| span.load(arrivals, listed).requests;
        assert_eq!(requests(span(Some(7), None), rate(), Some(3)), 7);
        assert_eq!(requests(span(None, None), Arrivals::Streams(8), None), 32);
        assert_eq!(requests(span(None, None), rate(), None), 10);
        assert_eq!(requests(span(None, None), rate(), Some(3)), 3);
        let minute = Some(Duration::from_secs(60));
        assert_eq!(requests(span(None, minute), rate(), Some(3)), u64::MAX);
        assert_eq!(requests(span(None, minute), Arrivals::At([Duration::ZERO].into()), Some(1)), 1);
    }
}
