//! The one task that owns the scheduler and the session with the shard.
//!
//! Each turn it waits for one thing (somebody left, a result, a new request, the moment to send), takes all that waits
//! with it, and then sends what may be sent: so a request that has arrived is in the very next plan. Readers are woken
//! after that, and where results wait together, once for all of them: their tokens go out in one write.

use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

use headrace_scheduler::trace::TracedScheduler;
use headrace_scheduler::{Admission, Micros, RequestId};
use headrace_shard::{LogicalShard, Sampling, Session, ShardError};
use headrace_text::Tokenizer;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::answer::Answer;
use crate::by_request::ByRequest;
use crate::command::{Command, MAX_WAITING_COMMANDS};
use crate::config::EngineConfig;
use crate::departures::Departures;
use crate::generation::GenerationError;
use crate::landing::SentSteps;
use crate::link::{Arrival, Link};
use crate::pacing::{Pacing, Shape};
use crate::published::{Published, Totals};
use crate::telemetry::Telemetry;
use crate::tenants::Tenants;
use crate::trace::Tracing;

/// The reactor's timers are a millisecond coarse, and late rather than early.
const TIMER_GRAIN: Micros = Micros(1_000);

/// Turns until readers hear of their tokens at the latest. A shard that is as fast as the router has two results waiting
/// at the most; only one that computes nothing always has another.
const MAX_TURNS: u32 = 8;

/// Why the engine's task ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineStopped {
    /// Every handle was dropped, and what ran is finished.
    #[error("nobody uses it any more")]
    Unused,
    #[error("the shard died: {0}")]
    ShardDied(ShardError),
    /// It was told to end.
    #[error("it was closed")]
    Closed,
    /// The task itself failed.
    #[error("its task broke: {0}")]
    Broken(String),
}

pub(crate) struct Driver {
    pub(crate) scheduler: TracedScheduler,
    pub(crate) answers: ByRequest<Answer>,
    pub(crate) sent: SentSteps,
    pub(crate) pacing: Pacing,
    pub(crate) telemetry: Telemetry,
    /// Answers that got a token this turn; kept for its allocation.
    pub(crate) grown: Vec<RequestId>,
    /// Answers whose readers are to be woken, each once; kept for its allocation.
    pub(crate) untold: Vec<RequestId>,
    tracing: Tracing,
    link: Link,
    pub(crate) tokenizer: Arc<Tokenizer>,
    commands: mpsc::Receiver<Command>,
    pub(crate) departures: Arc<Departures>,
    pub(crate) tenants: Tenants,
    pub(crate) published: Arc<Published>,
    pub(crate) stream_buffer: usize,
    /// Prompt and answer tokens, at most, of what runs.
    running_budget: u64,
    pub(crate) totals: Totals,
    /// Answers whose progress somebody looks at.
    pub(crate) followed: usize,
    /// The last moment at which the scheduler was asked for a plan.
    planned: Micros,
    /// Told to end: nothing runs any more, and the task is about to return.
    pub(crate) closed: bool,
    /// Moment 0.
    began: Instant,
}

/// What a turn begins with.
enum Wake {
    Departure,
    Shard(Arrival),
    Command(Option<Command>),
    Due,
}

impl Driver {
    pub(crate) fn new(
        config: EngineConfig,
        shard: LogicalShard,
        session: Session,
        tokenizer: Arc<Tokenizer>,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let pool_tokens = u64::from(config.scheduler.total_blocks.0) * u64::from(config.scheduler.block_size.0);
        let policy = config.scheduler.policy;
        let mut scheduler = TracedScheduler::new(config.scheduler);
        let mut tracing = Tracing::new(config.trace);
        tracing.begin(&mut scheduler);
        let published = Arc::new(Published::new(&scheduler.stats(), scheduler.drain_time()));
        Self {
            scheduler,
            answers: ByRequest::default(),
            sent: SentSteps::default(),
            pacing: Pacing::default(),
            telemetry: Telemetry::new(pool_tokens, policy),
            grown: Vec::new(),
            untold: Vec::new(),
            tracing,
            link: Link::new(shard, session, config.recovery),
            tokenizer,
            commands,
            departures: Arc::default(),
            tenants: Tenants::default(),
            published,
            stream_buffer: config.stream_buffer,
            running_budget: 0,
            totals: Totals::default(),
            followed: 0,
            planned: Micros::ZERO,
            closed: false,
            began: Instant::now(),
        }
    }

    pub(crate) fn published(&self) -> Arc<Published> {
        self.published.clone()
    }

    pub(crate) fn now(&self) -> Micros {
        self.moment(Instant::now())
    }

    /// Runs until the shard is dead for good, or nobody holds a handle and nothing runs.
    pub(crate) async fn run(mut self) -> EngineStopped {
        loop {
            let wake = self.wait().await;
            let outcome = self.turns(wake);
            self.tell_readers();
            match outcome {
                Ok(()) if self.closed => return EngineStopped::Closed,
                Ok(()) if self.commands.is_closed() && self.commands.is_empty() && self.answers.is_empty() => {
                    return self.stop(EngineStopped::Unused);
                }
                Ok(()) => tokio::task::coop::consume_budget().await,
                Err(error) => return self.stop(EngineStopped::ShardDied(error)),
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let due = self.alarm().map(|due| self.began + Duration::from_micros(due.0));
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.departures.wait() => Wake::Departure,
            arrival = self.link.next() => Wake::Shard(arrival),
            command = self.commands.recv(), if !self.commands.is_closed() || !self.commands.is_empty() => {
                Wake::Command(command)
            }
            () = due => Wake::Due,
        }
    }

    /// A turn, and one more for each result that is there by then.
    fn turns(&mut self, wake: Wake) -> Result<(), ShardError> {
        self.turn(wake)?;
        for _ in 1..MAX_TURNS {
            let Some(arrival) = self.link.try_next().filter(|_| !self.closed) else { break };
            self.turn(Wake::Shard(arrival))?;
        }
        Ok(())
    }

    /// Deals with what woke the driver and with all that waits beside it, then sends. The error is the shard's death.
    fn turn(&mut self, wake: Wake) -> Result<(), ShardError> {
        match wake {
            Wake::Shard(Arrival::Result(result)) => self.land(result),
            Wake::Shard(arrival) => self.session_changed(arrival)?,
            Wake::Command(Some(command)) => self.obey(command),
            Wake::Command(None) | Wake::Departure | Wake::Due => {}
        }
        for _ in 0..MAX_WAITING_COMMANDS {
            let Ok(command) = self.commands.try_recv() else { break };
            self.obey(command);
        }
        if self.closed {
            return Ok(());
        }
        self.let_departed_go();
        if let Err(error) = self.send() {
            let arrival = self.link.lost(error);
            self.session_changed(arrival)?;
        }
        self.tracing.turn(&mut self.scheduler);
        self.publish();
        Ok(())
    }

    /// Sends filters and as many steps as may be in flight now.
    fn send(&mut self) -> Result<(), ShardError> {
        while self.link.is_open() && self.due().is_none() {
            let now = self.now();
            let began = Wall::now();
            self.planned = now;
            let plan = self.scheduler.plan_step(now);
            self.deliver_events(&mut [], now);
            self.send_filter()?;
            let Some(plan) = plan else {
                self.pacing.rest();
                break;
            };
            let sampling = plan.admitted.iter().map(|admission| self.admit(admission, now)).collect::<Vec<_>>();
            self.link.send_step(&plan, &sampling)?;
            let shape = Shape::of(&plan);
            self.telemetry.sent(&plan, shape.kind, began.elapsed());
            self.pacing.sent(shape, now);
            self.sent.push(plan);
        }
        Ok(())
    }

    /// When to act although nothing comes: the next step may go out, a deadline passes, or a batch is due.
    ///
    /// While a step waits for its moment, deadlines wait with it, for less than a step's time. What the scheduler has
    /// been asked about already is no reason to ask again: only something that comes can change its answer.
    fn alarm(&self) -> Option<Micros> {
        if !self.link.is_open() {
            return None;
        }
        self.due().or_else(|| self.scheduler.wakes_at().filter(|&moment| moment > self.planned))
    }

    /// When the next step may go out, if that is later than now.
    fn due(&self) -> Option<Micros> {
        if !self.link.is_open() || self.sent.len() != 1 {
            return None;
        }
        let due = self.pacing.due()?.saturating_sub(TIMER_GRAIN);
        (due > self.now()).then_some(due)
    }

    fn send_filter(&mut self) -> Result<(), ShardError> {
        let mut ended = Vec::new();
        while let Some(release) = self.scheduler.poll_release() {
            ended.push(release);
        }
        if ended.is_empty() {
            return Ok(());
        }
        let began = Wall::now();
        self.link.send_filter(&ended)?;
        self.telemetry.filtered(began.elapsed());
        Ok(())
    }

    /// The request gets a row: how it samples.
    fn admit(&mut self, admission: &Admission, now: Micros) -> Sampling {
        // The scheduler plans no request that has ended, so the answer is there.
        let Some(answer) = self.answers.get_mut(&admission.request) else { return Sampling::greedy() };
        if answer.admit(admission.computed, now)
            && let Some(progress) = &answer.progress
        {
            progress.admitted(Instant::now(), admission.computed);
        }
        if !std::mem::replace(&mut answer.running, true) {
            self.running_budget += answer.budget;
        }
        answer.sampling.clone()
    }

    /// The request gave its row back and waits again.
    pub(crate) fn vacate(&mut self, request: RequestId) {
        let Some(answer) = self.answers.get_mut(&request) else { return };
        if std::mem::take(&mut answer.running) {
            self.running_budget = self.running_budget.saturating_sub(answer.budget);
        }
    }

    /// Forgets a request: the only place where an answer leaves.
    pub(crate) fn remove(&mut self, request: RequestId) -> Option<Answer> {
        self.vacate(request);
        let answer = self.answers.remove(&request)?;
        self.tenants.leave(answer.tenant);
        self.followed -= usize::from(answer.progress.is_some());
        Some(answer)
    }

    /// All KV is gone, everybody waits again: streams go on when a new session is open.
    fn session_changed(&mut self, arrival: Arrival) -> Result<(), ShardError> {
        match arrival {
            Arrival::Dead(error) => return Err(error),
            Arrival::Lost(error) => {
                tracing::warn!(%error, running = self.answers.len(), "the session was lost; opening a new one");
                let now = self.now();
                self.sent.clear();
                self.pacing.session_lost();
                self.scheduler.session_lost(now);
                self.deliver_events(&mut [], now);
            }
            Arrival::Opened => tracing::info!(waiting = self.answers.len(), "a new session is open"),
            Arrival::Result(result) => self.land(result),
        }
        Ok(())
    }

    fn publish(&self) {
        let stats = self.scheduler.stats();
        let drain = self.scheduler.drain_time();
        self.published.publish(&stats, &self.totals, drain);
        self.telemetry.load.publish(&stats, &self.totals, self.running_budget, drain);
        self.telemetry.hop(self.pacing.hop());
        self.published.set_idle(self.answers.is_empty() && stats.steps_in_flight == 0);
    }

    fn stop(&mut self, stopped: EngineStopped) -> EngineStopped {
        if let EngineStopped::ShardDied(error) = &stopped {
            let (reason, failed) = (error.to_string(), self.answers.len());
            tracing::warn!(reason, failed, "the session with the shard is over; every generation fails");
            // Dead first: whoever learns of a failed generation must not be told that the engine serves.
            self.published.die(&reason);
            for (_, answer) in self.answers.drain() {
                answer.fail(GenerationError::ShardDied(reason.clone()));
            }
        }
        stopped
    }

    /// Cuts off whatever still runs, and says how many that were. The state stays what it is: refusals go on to say that
    /// the server shuts down.
    pub(crate) fn close(&mut self) -> usize {
        self.published.drain();
        self.closed = true;
        let cut_off = self.answers.len();
        self.answers.drain().for_each(|(_, answer)| answer.fail(GenerationError::CutOff));
        cut_off
    }

    pub(crate) fn moment(&self, instant: Instant) -> Micros {
        Micros(instant.saturating_duration_since(self.began).as_micros() as u64)
    }
}

impl Drop for Driver {
    /// Whatever ended the task, nobody waits for it in vain.
    fn drop(&mut self) {
        match self.closed {
            true => self.published.set_idle(true),
            false => self.published.die("the engine's task has ended"),
        }
    }
}
