//! The handle that callers hold.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use headrace_shard::{LogicalShard, ShardError};
use headrace_text::Tokenizer;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::command::{Command, MAX_WAITING_COMMANDS, Submission};
use crate::config::EngineConfig;
use crate::driver::{Driver, EngineStopped};
use crate::generation::{GenerationError, GenerationRequest};
use crate::health;
use crate::published::{EngineSnapshot, EngineState, Published};
use crate::stream::Generation;
use crate::vitals::Vitals;

/// A handle to a running engine. Cheap to clone. When the last one is dropped the engine finishes what runs and stops.
#[derive(Clone)]
pub struct Engine {
    commands: mpsc::Sender<Command>,
    published: Arc<Published>,
    shard: LogicalShard,
    vitals: Arc<Vitals>,
}

/// Resolves with the reason when the engine's task ends. Dropping it does not stop the engine.
pub struct EngineTask(JoinHandle<EngineStopped>);

impl Engine {
    /// Opens a session with the shard, which Warmup has prepared, and starts the engine's task.
    ///
    /// # Errors
    /// The shard's, when there is no session.
    pub async fn start(
        config: EngineConfig,
        shard: LogicalShard,
        tokenizer: Arc<Tokenizer>,
    ) -> Result<(Self, EngineTask), ShardError> {
        let session = shard.open_session().await?;
        let (commands, inbox) = mpsc::channel(MAX_WAITING_COMMANDS);
        let driver = Driver::new(config, shard.clone(), session, tokenizer, inbox);
        let published = driver.published();
        let task = EngineTask(tokio::spawn(driver.run()));
        let vitals = Vitals::watch(commands.downgrade(), shard.clone());
        Ok((Self { commands, published, shard, vitals }, task))
    }

    /// Has a request taken: it is in the next step that is sent, if there is room. Waits while many others are being
    /// taken. Dropping this future before it is ready cancels the request, as dropping the generation does.
    ///
    /// # Errors
    /// At once when the request can never run or too many do already, when the server drains, when the shard died.
    pub async fn generate(&self, request: GenerationRequest) -> Result<Generation, GenerationError> {
        let generation = self.generate_all(vec![request]).await?.pop();
        generation.ok_or_else(|| self.refusal())
    }

    /// Has several requests taken together, before the next step is planned: all of them, or none. Generations come in
    /// the order of the requests.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), for the first that is refused.
    pub async fn generate_all(&self, requests: Vec<GenerationRequest>) -> Result<Vec<Generation>, GenerationError> {
        if !self.published.is_serving() {
            return Err(self.refusal());
        }
        let (reply, answer) = oneshot::channel();
        let submission = Submission { requests, submitted: Instant::now(), reply };
        let sent = self.commands.send(Command::Generate(Box::new(submission))).await;
        sent.map_err(|_| self.refusal())?;
        answer.await.unwrap_or_else(|_| Err(self.refusal()))
    }

    /// From now on no request is taken; those that were are finished.
    pub fn drain(&self) {
        if self.published.drain() {
            tracing::info!("draining: running requests are finished, new ones are refused");
        }
    }

    /// Ends the engine: requests that still run or wait fail with [`GenerationError::CutOff`], and the session with the
    /// shard is closed. Says how many were cut off; 0 when the engine has ended already.
    pub async fn close(&self) -> usize {
        let (reply, answer) = oneshot::channel();
        match self.commands.send(Command::Close(reply)).await {
            Ok(()) => answer.await.unwrap_or(0),
            Err(_) => 0,
        }
    }

    /// Resolves when nothing runs, waits or is in flight; also when the engine is dead.
    pub async fn idle(&self) {
        self.published.idle().await;
    }

    /// The engine's task and every rank answer, in bounded time and whatever the model thread does.
    ///
    /// # Errors
    /// A sentence that says who does not, and why. A server that drains is not healthy: nobody should send it more.
    pub async fn healthy(&self) -> Result<(), String> {
        match self.state() {
            EngineState::Dead(reason) => Err(reason),
            EngineState::Draining => Err(GenerationError::ShuttingDown.to_string()),
            EngineState::Serving => health::check(&self.commands, &self.shard).await,
        }
    }

    /// The engine's task turns. Answered at once, from what was last seen; so is [`ready`](Self::ready).
    ///
    /// # Errors
    /// A sentence that says that it does not, or why it ended.
    pub fn alive(&self) -> Result<(), String> {
        match self.state() {
            EngineState::Dead(reason) => Err(reason),
            EngineState::Draining | EngineState::Serving => self.vitals.driver(),
        }
    }

    /// Requests are taken, and every rank of the shard answers.
    ///
    /// # Errors
    /// A sentence that says why somebody else should have the request.
    pub fn ready(&self) -> Result<(), String> {
        self.alive()?;
        match self.state() {
            EngineState::Serving => self.vitals.shard(),
            EngineState::Draining | EngineState::Dead(_) => Err(GenerationError::ShuttingDown.to_string()),
        }
    }

    /// Whether requests are taken.
    pub fn state(&self) -> EngineState {
        self.published.state()
    }

    /// How things stood after the engine's last turn.
    pub fn snapshot(&self) -> EngineSnapshot {
        self.published.snapshot()
    }

    fn refusal(&self) -> GenerationError {
        match self.state() {
            EngineState::Draining => GenerationError::ShuttingDown,
            EngineState::Dead(reason) => GenerationError::ShardDied(reason),
            EngineState::Serving => GenerationError::ShardDied("the engine's task has ended".to_owned()),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("state", &self.state()).field("snapshot", &self.snapshot()).finish()
    }
}

impl Future for EngineTask {
    type Output = EngineStopped;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<EngineStopped> {
        let stopped = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(stopped.unwrap_or_else(|error| EngineStopped::Broken(error.to_string())))
    }
}
