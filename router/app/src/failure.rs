//! Why the process ends with an error: one line for people, and an exit code.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use headrace_engine::EngineStopped;
use headrace_http::InstallMetricsError;
use headrace_shard::ShardError;
use headrace_text::TokenizerError;

use crate::bench::BenchError;
use crate::config::ConfigError;
use crate::defaults::LimitError;
use crate::flags::Origins;
use crate::listen::ListenError;
use crate::model::ModelError;
use crate::prepare::PrepareError;
use crate::same_model::OtherModel;
use crate::simulate::SimulateError;
use crate::socket::SocketError;
use crate::supervise::Death;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The flags ask for more than the loaded model or the pool can give.
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    OtherModel(#[from] OtherModel),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("cannot start rank {rank}: {program}: {reason}")]
    Spawn { rank: u32, program: String, reason: io::Error },
    #[error("the shards cannot meet at {address} (--master-addr): {reason}; name an address of this machine")]
    Meeting { address: String, reason: io::Error },
    #[error("cannot write the trace {path}: {reason}; name a file that can be created with --trace")]
    Trace { path: String, reason: io::Error },
    #[error("cannot write the reference to {}: {reason}", directory.display())]
    Reference { directory: PathBuf, reason: io::Error },
    /// The child has written its own line.
    #[error("the kernels could not be compiled")]
    Warm,
    #[error("{0}")]
    Died(Death),
    #[error(transparent)]
    Shard(#[from] ShardError),
    #[error("the engine stopped: {0}")]
    Engine(EngineStopped),
    #[error("the HTTP server stopped: {0}")]
    Http(io::Error),
    #[error(transparent)]
    Metrics(#[from] InstallMetricsError),
    #[error("cannot set up logging: {0}")]
    Logs(String),
    #[error("cannot set up the runtime: {0}")]
    Runtime(io::Error),
    #[error("{requests} requests were cut off: {why}")]
    CutOff { requests: usize, why: CutOff },
}

/// Why a drain ended before the last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CutOff {
    #[error(
        "they still ran {} s after the signal; give them more time with --graceful-termination-timeout", .0.as_secs()
    )]
    GraceOver(Duration),
    #[error("a second signal, {0}, came while they ran")]
    SecondSignal(&'static str),
}

impl Failure {
    /// Processes of the shard live, but one of them does not answer.
    pub fn is_hang(&self) -> bool {
        matches!(self, Self::Engine(EngineStopped::ShardDied(ShardError::Hung { .. })))
    }

    /// Says what happened, unless somebody did already, and gives the exit code: 2 for flags that cannot work here,
    /// 1 for everything else. `json`: as a line of the JSON log.
    /// `origins`: flags of which something else was written are named with that.
    pub fn report(&self, json: bool, origins: &Origins) -> ExitCode {
        match self {
            Self::Prepare(PrepareError::Said) => {}
            failure => {
                let sentence = failure.to_string();
                let sentence = format!("{sentence}{}", origins.note(&sentence));
                if json { tracing::error!("{sentence}") } else { eprintln!("error: {sentence}") }
            }
        }
        match self {
            Self::Simulate(
                SimulateError::Stuck(_)
                | SimulateError::Write { .. }
                | SimulateError::Output(_)
                | SimulateError::Replay { .. },
            ) => ExitCode::FAILURE,
            Self::Bench(BenchError::Target(_) | BenchError::Workload(_) | BenchError::Tokenizer(_)) => {
                ExitCode::from(2)
            }
            Self::Config(_) | Self::Simulate(_) | Self::Listen(_) | Self::Limit(_) | Self::OtherModel(_) => {
                ExitCode::from(2)
            }
            _ => ExitCode::FAILURE,
        }
    }
}
