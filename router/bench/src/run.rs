//! One run: requests start as the load says, and what comes of them is gathered.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use crate::answer::{Answer, AskError};
use crate::connection::Connection;
use crate::load::{Arrivals, Load, poisson};
use crate::report::Report;
use crate::tally::Tally;
use crate::target::Target;
use crate::usage::Cpu;
use crate::workload::Workload;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Bench {
    pub target: Target,
    pub workload: Workload,
    pub load: Load,
    /// Look into every event, for exact times between tokens where a server sends events without any; else only into
    /// the first and the last ones.
    pub parse_events: bool,
    /// The server's process, where its CPU time is wanted.
    pub server: Option<u32>,
}

impl Bench {
    /// Waits until the server says that it is healthy, or until `patience` is over.
    ///
    /// # Errors
    /// What it did instead, the last time it was asked.
    pub async fn wait_until_healthy(&self, patience: Duration) -> Result<(), AskError> {
        let deadline = Instant::now() + patience;
        loop {
            match timeout(HEALTH_TIME, self.healthy()).await.unwrap_or(Err(AskError::Timeout(HEALTH_TIME))) {
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => tokio::time::sleep(HEALTH_PAUSE).await,
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn healthy(&self) -> Result<(), AskError> {
        let status = Connection::open(&self.target).await?.status(self.target.health()).await?;
        match status.as_u16() {
            200 => Ok(()),
            status => Err(AskError::Status { status, body: "not healthy".into() }),
        }
    }
}

/// Runs the bench on the runtime of the caller; one of a single thread is enough, and disturbs least.
///
/// # Errors
/// The server's CPU time cannot be read.
pub async fn run(bench: &Bench) -> io::Result<Report> {
    let server = || bench.server.map(Cpu::of).transpose();
    if bench.load.warmup > 0 {
        let asker = Asker::new(bench, WARMUP_NUMBERS, bench.load.warmup);
        asker.streams(bench.load.warmup.min(WARMUP_STREAMS) as u32).await;
    }
    let asker = Asker::new(bench, 0, bench.load.requests);
    let (own, servers, began) = (Cpu::own(), server()?, Instant::now());
    match bench.load.arrivals {
        Arrivals::Streams(streams) => asker.streams(streams).await,
        Arrivals::Rate(rate) => asker.arrivals(rate).await,
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
    /// Requests started.
    started: AtomicU64,
    /// No request starts later.
    over: Option<Instant>,
    tally: Mutex<Tally>,
    /// Connections that wait for their next request.
    idle: Mutex<Vec<Connection>>,
}

impl Asker {
    fn new(bench: &Bench, base: u64, requests: u64) -> Self {
        Self(Arc::new(Shared {
            bench: bench.clone(),
            base,
            requests,
            started: AtomicU64::new(0),
            over: bench.load.duration.map(|duration| Instant::now() + duration),
            tally: Mutex::new(Tally::new()),
            idle: Mutex::default(),
        }))
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
    async fn arrivals(&self, rate: f64) {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for due in poisson(rate, self.0.bench.workload.seed) {
            let due = began.checked_add(due).filter(|&due| self.0.over.is_none_or(|over| due < over));
            let Some(due) = due else { break };
            sleep_until(due.into()).await;
            let Some(number) = self.next() else { break };
            let asker = self.clone();
            tasks.spawn(async move { asker.ask(number, &mut Vec::new()).await });
            while tasks.try_join_next().is_some() {}
        }
        tasks.join_all().await;
    }

    /// The number of the next request, if there is one.
    fn next(&self) -> Option<u64> {
        if self.0.over.is_some_and(|over| Instant::now() >= over) {
            return None;
        }
        let number = self.0.started.fetch_add(1, Ordering::Relaxed);
        (number < self.0.requests).then(|| self.0.base + number)
    }

    async fn ask(&self, number: u64, gaps: &mut Vec<u32>) {
        let Bench { target, workload, load, parse_events, .. } = &self.0.bench;
        let ask = workload.ask(number);
        let asked = ask.output_tokens;
        let request = target.request(&ask);
        let mut answer = Answer::new(target.api(), *parse_events, Instant::now(), gaps);
        let asking = async {
            let mut connection = self.connection().await?;
            let reads = connection.stream(request, &mut answer).await?;
            lock(&self.0.idle).push(connection);
            Ok(reads)
        };
        let read = timeout(load.timeout, asking).await.unwrap_or(Err(AskError::Timeout(load.timeout)));
        let outcome = read.and_then(|reads| Ok((answer.end()?, reads)));
        let mut tally = lock(&self.0.tally);
        match outcome {
            Ok((whole, reads)) => tally.whole(&whole, gaps, reads, asked),
            Err(error) => tally.failed(&error),
        }
    }

    /// One that is there and still open, or a new one.
    async fn connection(&self) -> Result<Connection, AskError> {
        loop {
            let Some(mut connection) = lock(&self.0.idle).pop() else { break };
            if connection.is_ready().await {
                return Ok(connection);
            }
        }
        Connection::open(&self.0.bench.target).await
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.0.tally)
    }
}

/// Every change is made whole, so poison means nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const HEALTH_TIME: Duration = Duration::from_secs(5);
const HEALTH_PAUSE: Duration = Duration::from_millis(50);

/// Warm-up requests ask what no request of the run does.
const WARMUP_NUMBERS: u64 = 1 << 48;
const WARMUP_STREAMS: u64 = 64;
