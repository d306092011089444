//! The session with the shard, and how a new one is opened when it ends.

use std::pin::Pin;
use std::time::Duration;

use headrace_scheduler::{Epoch, Row, StepPlan};
use headrace_shard::{LogicalShard, Sampling, Session, ShardError, StepResult};

use crate::config::Recovery;

type Opening = Pin<Box<dyn Future<Output = Result<Session, ShardError>> + Send>>;

/// One session after another. While one is being opened, nothing can be sent, and everything else goes on.
pub(crate) struct Link {
    shard: LogicalShard,
    recovery: Recovery,
    state: State,
    /// Sessions lost or not opened since the last result.
    failures: u32,
}

enum State {
    Open(Session),
    Opening(Opening),
}

/// What the link brings.
pub(crate) enum Arrival {
    Result(StepResult),
    /// A new session is open.
    Opened,
    /// The session is over, and a new one is being opened.
    Lost(ShardError),
    /// There will be no other session.
    Dead(ShardError),
}

impl Link {
    pub(crate) fn new(shard: LogicalShard, session: Session, recovery: Recovery) -> Self {
        Self { shard, recovery, state: State::Open(session), failures: 0 }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Waits for whatever comes next. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Arrival {
        match &mut self.state {
            State::Open(session) => match session.next_result().await {
                Ok(result) => {
                    self.failures = 0;
                    Arrival::Result(result)
                }
                Err(error) => self.lost(error),
            },
            State::Opening(opening) => match opening.await {
                Ok(session) => {
                    self.state = State::Open(session);
                    Arrival::Opened
                }
                Err(error) => self.lost(error),
            },
        }
    }

    /// What has come already.
    pub(crate) fn try_next(&mut self) -> Option<Arrival> {
        let State::Open(session) = &mut self.state else { return None };
        Some(match session.try_result()? {
            Ok(result) => {
                self.failures = 0;
                Arrival::Result(result)
            }
            Err(error) => self.lost(error),
        })
    }

    /// Sends a step. Does nothing while no session is open.
    ///
    /// # Errors
    /// The session is over; pass the error to [`lost`](Self::lost).
    pub(crate) fn send_step(&mut self, plan: &StepPlan, sampling: &[Sampling]) -> Result<(), ShardError> {
        match &mut self.state {
            State::Open(session) => session.send_step(plan, sampling),
            State::Opening(_) => Ok(()),
        }
    }

    /// Tells the shard which rows ended. Does nothing while no session is open: a new one knows no rows.
    ///
    /// # Errors
    /// As [`send_step`](Self::send_step).
    pub(crate) fn send_filter(&mut self, rows: &[(Row, Epoch)]) -> Result<(), ShardError> {
        match &mut self.state {
            State::Open(session) => session.send_filter(rows),
            State::Opening(_) => Ok(()),
        }
    }

    /// The session is over, or could not be opened: begins to open another one if there is to be one.
    pub(crate) fn lost(&mut self, error: ShardError) -> Arrival {
        let Recovery::Reopen { attempts, delay } = self.recovery else {
            return Arrival::Dead(error);
        };
        if self.failures >= attempts {
            return Arrival::Dead(error);
        }
        let wait = if self.failures == 0 { Duration::ZERO } else { delay };
        self.failures += 1;
        let shard = self.shard.clone();
        self.state = State::Opening(Box::pin(async move {
            tokio::time::sleep(wait).await;
            shard.open_session().await
        }));
        Arrival::Lost(error)
    }
}
