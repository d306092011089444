//! One run: requests start as the load says, and what comes of them is gathered.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use crate::answer::{Answer, AskError, Whole};
use crate::connection::{Connection, follow};
use crate::goodput::Limits;
use crate::load::{Arrivals, Load};
use crate::progress::Progress;
use crate::report::Report;
use crate::tally::{Ended, Tally};
use crate::target::Target;
use crate::usage::Cpu;
use crate::workload::{Ask, WordsError, Workload};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Bench {
    pub target: Target,
    pub workload: Workload,
    pub load: Load,
    /// What a good answer keeps.
    pub limits: Limits,
    /// The first request's number, below 2⁴⁸. Runs on one server whose numbers differ have the same lengths and other
    /// prompts, which its prefix cache has not seen.
    pub first: u64,
    /// Look into every event, for exact times between tokens where a server sends events without any; else only into
    /// the first and the last ones.
    pub parse_events: bool,
    /// The server's process, where its CPU time is wanted.
    pub server: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot read the CPU time of the server's process: {0}")]
    Cpu(#[from] io::Error),
    #[error(transparent)]
    Words(#[from] WordsError),
}

/// Runs the bench on the runtime of the caller; one of a single thread is enough, and disturbs least. `progress` counts
/// what is measured, not the warm-up.
///
/// Prompts of up to [`PREPARED`] requests are made before the first is sent, so that the client's work does not take
/// from the server's; those after them as they are sent.
///
/// # Errors
/// The server's CPU time cannot be read, or the first prompts cannot be made.
pub async fn run(bench: &Bench, progress: Arc<Progress>) -> Result<Report, RunError> {
    let server = || bench.server.map(Cpu::of).transpose();
    if bench.load.warmup > 0 {
        let asker = Asker::new(bench, WARMUP_NUMBERS, bench.load.warmup, Arc::default())?;
        asker.streams(bench.load.warmup.min(WARMUP_STREAMS) as u32).await;
    }
    let asker = Asker::new(bench, 0, bench.load.requests, progress)?;
    let (own, servers, began) = (Cpu::own(), server()?, Instant::now());
    match (&bench.load.arrivals, bench.load.arrivals.due(bench.workload.seed)) {
        (_, Some(due)) => asker.arrivals(due).await,
        (Arrivals::Streams(streams), None) => asker.streams(*streams).await,
        (_, None) => {}
    }
    let took = began.elapsed();
    let client = Cpu::own() - own;
    let servers = server()?.zip(servers).map(|(after, before)| after - before);
    Ok(Report::new(bench, &asker.tally(), took, client, servers))
}

/// Asks, and notes what came of it. Clones share everything.
#[derive(Clone)]
struct Asker(Arc<Shared>);

struct Shared {
    bench: Bench,
    /// The first request's number.
    base: u64,
    requests: u64,
    /// What the first ones ask.
    prepared: Vec<Ask>,
    progress: Arc<Progress>,
    /// Requests started.
    started: AtomicU64,
    /// No request starts later.
    over: Option<Instant>,
    tally: Mutex<Tally>,
    /// Connections that wait for their next request.
    idle: Mutex<Vec<Connection>>,
}

impl Asker {
    /// The clock of the run starts when this is done.
    fn new(bench: &Bench, base: u64, requests: u64, progress: Arc<Progress>) -> Result<Self, WordsError> {
        let base = bench.first + base;
        let ahead = if requests == u64::MAX { 1 } else { requests.min(PREPARED) };
        let prepared: Result<_, _> = (0..ahead).map(|place| bench.workload.ask(base, place)).collect();
        let prepared = prepared?;
        let now = Instant::now();
        Ok(Self(Arc::new(Shared {
            bench: bench.clone(),
            base,
            requests,
            prepared,
            progress,
            started: AtomicU64::new(0),
            over: bench.load.duration.and_then(|duration| now.checked_add(duration)),
            tally: Mutex::new(Tally::new(bench.limits, now)),
            idle: Mutex::default(),
        })))
    }

    /// Closed loop.
    async fn streams(&self, streams: u32) {
        let mut tasks = JoinSet::new();
        for _ in 0..streams {
            let asker = self.clone();
            tasks.spawn(async move {
                let mut gaps = Vec::new();
                while let Some(number) = asker.next() {
                    asker.ask(number, &mut gaps).await;
                }
            });
        }
        tasks.join_all().await;
    }

    /// Open loop.
    async fn arrivals(&self, dues: impl Iterator<Item = Duration>) {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for due in dues {
            let due = began.checked_add(due).filter(|&due| self.0.over.is_none_or(|over| due < over));
            let Some(due) = due else { break };
            sleep_until(due.into()).await;
            let Some(number) = self.next() else { break };
            let asker = self.clone();
            tasks.spawn(async move {
                asker.tally().late(due.elapsed());
                asker.ask(number, &mut Vec::new()).await;
            });
            while tasks.try_join_next().is_some() {}
        }
        tasks.join_all().await;
    }

    /// The place of the next request among those of the run, if there is one.
    fn next(&self) -> Option<u64> {
        if self.0.over.is_some_and(|over| Instant::now() >= over) {
            return None;
        }
        let place = self.0.started.fetch_add(1, Ordering::Relaxed);
        (place < self.0.requests).then_some(place)
    }

    async fn ask(&self, place: u64, gaps: &mut Vec<u32>) {
        self.0.progress.started();
        let prompted = self.prompted(place);
        let sent = Instant::now();
        let outcome = match prompted {
            Ok((request, asked)) => self.answered(request, sent, gaps).await.map(|answered| (answered, asked)),
            Err(error) => Err(error),
        };
        self.0.progress.ended(outcome.is_ok());
        let mut tally = self.tally();
        match outcome {
            Ok(((whole, reads), asked)) => tally.whole(&Ended { whole, sent, gaps, reads, asked }),
            Err(error) => tally.failed(&error, sent, Instant::now()),
        }
    }

    /// The whole answer, and in how many reads it came.
    async fn answered(
        &self,
        request: Request<Full<Bytes>>,
        sent: Instant,
        gaps: &mut Vec<u32>,
    ) -> Result<(Whole, u64), AskError> {
        let Shared { bench, progress, .. } = &*self.0;
        let mut answer = Answer::new(bench.target.api(), bench.parse_events, sent, gaps);
        let asking = async {
            let (mut connection, kept) = self.connection().await?;
            let response = match connection.send(request.clone()).await {
                // Some servers close a connection after an answer without saying so: the request has met nobody.
                Err(AskError::Broken(_)) if kept => {
                    connection = Connection::open(&bench.target).await?;
                    connection.send(request).await?
                }
                response => response?,
            };
            let reads = follow(response, &mut answer, progress).await?;
            lock(&self.0.idle).push(connection);
            Ok(reads)
        };
        let patience = bench.load.timeout;
        let reads = timeout(patience, asking).await.unwrap_or(Err(AskError::Timeout(patience)))?;
        Ok((answer.end()?, reads))
    }

    /// The request, and how many tokens it asks for.
    fn prompted(&self, place: u64) -> Result<(Request<Full<Bytes>>, u32), AskError> {
        let Shared { bench, base, prepared, .. } = &*self.0;
        let made;
        let ask = match usize::try_from(place).ok().and_then(|place| prepared.get(place)) {
            Some(ask) => ask,
            None => {
                made = bench.workload.ask(*base, place).map_err(|error| AskError::Prompt(error.to_string()))?;
                &made
            }
        };
        Ok((bench.target.request(ask), ask.output_tokens))
    }

    /// One that is there and seems still open (true), or a new one.
    async fn connection(&self) -> Result<(Connection, bool), AskError> {
        loop {
            let Some(mut connection) = lock(&self.0.idle).pop() else { break };
            if connection.is_ready().await {
                return Ok((connection, true));
            }
        }
        Ok((Connection::open(&self.0.bench.target).await?, false))
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.0.tally)
    }
}

/// Every change is made whole, so poison means nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Few enough to be made in seconds and to fit into memory.
const PREPARED: u64 = 4096;
/// Warm-up requests ask what no request of the run does.
const WARMUP_NUMBERS: u64 = 1 << 48;
const WARMUP_STREAMS: u64 = 64;
