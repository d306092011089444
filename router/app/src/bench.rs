//! `headrace bench`: load on a server, and its figures on standard output.

mod bar;
mod origin;
mod requests;
mod server;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headrace_bench::{
    Arrivals, AskError, Axis, Bench, Cpu, FileError, Load, Outcome, Point, Progress, Report, RunError, Sweep, Target,
    TargetError, WordsError, html, run as measure,
};

use crate::config::bench::{Runs, STREAMS, Sink};
use crate::config::{BenchConfig, Server};
use crate::failure::Failure;
use bar::Bar;
use requests::Requested;
use server::{StartError, Started};

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("--url: {0}")]
    Target(#[from] TargetError),
    #[error("--workload: {0}")]
    Workload(#[from] FileError),
    #[error("--tokenizer: {0}")]
    Tokenizer(WordsError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{url} is not healthy after {} s: {reason}", after.as_secs())]
    NotHealthy { url: String, after: Duration, reason: AskError },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("no request was answered: {reason}")]
    NothingAnswered { reason: String },
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    #[error("cannot write {}: {reason}", path.display())]
    Write { path: PathBuf, reason: io::Error },
}

/// Runs the command, on one thread: the server that is measured may have the other cores.
pub fn run(config: BenchConfig) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    Ok(runtime.block_on(bench(config))?)
}

async fn bench(config: BenchConfig) -> Result<(), BenchError> {
    let requested = requests::read(&config.requests)?;
    let origin = origin::here();
    let outcome = match &config.server {
        Server::At { url, pid } => measured(&config, &requested, url, *pid).await?,
        Server::Command { words, log } => {
            let mut server = Started::start(words, log.as_deref())?;
            let (url, pid) = (server.url(), server.pid());
            let outcome = tokio::select! {
                outcome = measured(&config, &requested, &url, pid) => outcome,
                ended = server.ended() => Err(ended.into()),
            };
            server.stop().await;
            with_life(outcome?, Cpu::of_children())
        }
    };
    if let Some(path) = &config.html {
        write(path, &html::page(&outcome, &origin))?;
    }
    let json = config.json.as_ref().map(|sink| (sink, outcome.json(&origin) + "\n"));
    match json {
        Some((Sink::StandardOutput, json)) => show(&json)?,
        Some((Sink::File(path), json)) => {
            write(path, &json)?;
            show(&outcome.to_string())?;
        }
        None => show(&outcome.to_string())?,
    }
    answered(&outcome)
}

async fn measured(
    config: &BenchConfig,
    requested: &Requested,
    url: &str,
    pid: Option<u32>,
) -> Result<Outcome, BenchError> {
    let target = Target::new(url, config.api, config.model.clone(), config.api_key.as_deref())?;
    let load = |arrivals: &Arrivals| config.span.load(arrivals.clone(), requested.listed());
    let bench = |load: Load, run: u64| Bench {
        target: target.clone(),
        workload: requested.workload.clone(),
        load,
        limits: config.limits,
        first: run << RUN_BITS,
        parse_events: config.parse_events,
        server: pid,
    };
    let after = config.health_timeout;
    let healthy = target.wait_until_healthy(after).await;
    healthy.map_err(|reason| BenchError::NotHealthy { url: url.to_owned(), after, reason })?;
    match &config.runs {
        Runs::One(arrivals) => {
            let arrivals = arrivals.clone().or_else(|| requested.times.clone().map(Arrivals::At));
            let load = load(&arrivals.unwrap_or(Arrivals::Streams(STREAMS)));
            Ok(Outcome::Run(Box::new(watched(&bench(load, 0), "").await?)))
        }
        Runs::Sweep(axis, arrivals) => {
            let mut points = Vec::new();
            for (run, arrivals) in (0..).zip(arrivals) {
                let label = format!("{}/{}, {arrivals}: ", run + 1, config.runs.count());
                let report = watched(&bench(load(arrivals), run), &label).await?;
                points.push(Point { load: axis_value(*axis, arrivals), report });
            }
            Ok(Outcome::Sweep(Sweep::new(*axis, points)))
        }
    }
}

fn axis_value(axis: Axis, arrivals: &Arrivals) -> f64 {
    match (axis, arrivals) {
        (Axis::Rate, Arrivals::Rate { per_second, .. }) => *per_second,
        (_, Arrivals::Streams(streams)) => f64::from(*streams),
        _ => 0.0,
    }
}

/// A run, with a bar where there is somebody to see it.
async fn watched(bench: &Bench, label: &str) -> Result<Report, BenchError> {
    let progress = Arc::new(Progress::default());
    let bar = Bar::start(&progress, &bench.load, label);
    let report = measure(bench, progress).await;
    drop(bar);
    Ok(report?)
}

/// A sweep has no figures for the life of its server: it would have to share it out among the runs.
fn with_life(outcome: Outcome, life: Cpu) -> Outcome {
    match outcome {
        Outcome::Run(report) => Outcome::Run(Box::new(report.with_server_life(life))),
        sweep @ Outcome::Sweep(_) => sweep,
    }
}

fn answered(outcome: &Outcome) -> Result<(), BenchError> {
    let reports = outcome.reports();
    if reports.iter().any(|report| report.whole > 0) {
        return Ok(());
    }
    let reason = reports.iter().find_map(|report| report.first_failure.clone());
    Err(BenchError::NothingAnswered { reason: reason.unwrap_or_else(|| "the time was over before the first".into()) })
}

fn show(text: &str) -> Result<(), BenchError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads may stop early, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(BenchError::Output(error)),
        _ => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    fs::write(path, text).map_err(|reason| BenchError::Write { path: path.to_owned(), reason })
}

/// Each run of a sweep has numbers of its own: no run has more requests.
const RUN_BITS: u32 = 32;
