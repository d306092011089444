//! `headrace bench`: load on a server, and its figures on standard output.

mod server;

use std::io::{self, Write};
use std::time::Duration;

use headrace_bench::{AskError, Bench, Cpu, Report, Target, TargetError, run as measure};

use crate::config::{BenchConfig, Server};
use crate::failure::Failure;
use server::{StartError, Started};

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("--url: {0}")]
    Target(#[from] TargetError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{url} is not healthy after {} s: {reason}", after.as_secs())]
    NotHealthy { url: String, after: Duration, reason: AskError },
    #[error("cannot read the CPU time of process {pid}: {reason}")]
    Cpu { pid: u32, reason: io::Error },
    #[error("no request was answered: {reason}")]
    NothingAnswered { reason: String },
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

/// Runs the command, on one thread: the server that is measured may have the other cores.
pub fn run(config: BenchConfig) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    Ok(runtime.block_on(bench(config))?)
}

async fn bench(config: BenchConfig) -> Result<(), BenchError> {
    let report = match &config.server {
        Server::At { url, pid } => measured(&config, url, *pid).await?,
        Server::Command { words, log } => {
            let mut server = Started::start(words, log.as_deref())?;
            let (url, pid) = (server.url(), server.pid());
            let outcome = tokio::select! {
                outcome = measured(&config, &url, pid) => outcome,
                ended = server.ended() => Err(ended.into()),
            };
            server.stop().await;
            outcome?.with_server_life(Cpu::of_children())
        }
    };
    show(&report, config.json).map_err(BenchError::Output)?;
    if report.whole > 0 {
        return Ok(());
    }
    let reason = report.failures.into_keys().next().unwrap_or_else(|| "the time was over before the first".into());
    Err(BenchError::NothingAnswered { reason })
}

async fn measured(config: &BenchConfig, url: &str, pid: Option<u32>) -> Result<Report, BenchError> {
    let bench = Bench {
        target: Target::new(url, config.api, config.model.clone(), config.api_key.as_deref())?,
        workload: config.workload.clone(),
        load: config.load.clone(),
        parse_events: config.parse_events,
        server: pid,
    };
    let after = config.health_timeout;
    let healthy = bench.wait_until_healthy(after).await;
    healthy.map_err(|reason| BenchError::NotHealthy { url: url.to_owned(), after, reason })?;
    measure(&bench).await.map_err(|reason| BenchError::Cpu { pid: pid.unwrap_or(0), reason })
}

fn show(report: &Report, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let shown = if json { writeln!(out, "{}", report.json()) } else { write!(out, "{report}") };
    match shown {
        // Whoever reads may stop early, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
