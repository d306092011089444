//! A session: plans go in, results come out, strictly in order.

use futures::FutureExt;
use headrace_scheduler::{Epoch, Row, StepPlan};

use crate::error::ShardError;
use crate::fake::FakeSession;
use crate::remote::RemoteSession;
use crate::result::StepResult;
use crate::sampling::Sampling;

/// Steps that may be unanswered. The router's pipeline is two deep; a caller beyond this has lost count.
pub const MAX_STEPS_IN_FLIGHT: usize = 4;

/// Filter messages that may be unanswered. Each names at least one epoch that ended, and epochs begin only with steps,
/// so several times the largest batch is out of reach of a correct caller.
pub const MAX_FILTERS_IN_FLIGHT: usize = 1024;

/// The open connection to all ranks in which steps run. Nothing waits but [`next_result`](Self::next_result).
///
/// After an error from any method the session is over: the shard's state of all rows and the whole KV pool are gone, and
/// every later call returns the same error (`next_result` after results that had arrived before). Dropping a session
/// ends it too.
#[derive(Debug)]
pub struct Session {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Remote(Box<RemoteSession>),
    Fake(Box<FakeSession>),
}

impl Session {
    pub(crate) fn remote(session: RemoteSession) -> Self {
        Self { kind: Kind::Remote(Box::new(session)) }
    }

    pub(crate) fn fake(session: FakeSession) -> Self {
        Self { kind: Kind::Fake(Box::new(session)) }
    }

    /// Lets go the sampling state of rows whose epoch ended. Takes its place in the order of messages; no-op for none.
    /// A row that the shard does not hold is no error. The answers are consumed by `next_result`.
    ///
    /// # Errors
    /// The session's, when it is over.
    pub fn send_filter(&mut self, rows: &[(Row, Epoch)]) -> Result<(), ShardError> {
        match &mut self.kind {
            _ if rows.is_empty() => Ok(()),
            Kind::Remote(session) => session.send_filter(rows),
            Kind::Fake(session) => session.send_filter(rows),
        }
    }

    /// Sends a step: as a Prefill when it has chunks, else as a Decode. `sampling[i]` belongs to `plan.admitted[i]`.
    ///
    /// # Errors
    /// `Misuse` for a plan that cannot be sent (empty, ranges outside its blocks, too large, more than
    /// [`MAX_STEPS_IN_FLIGHT`] steps unanswered); the session's, when it is over.
    pub fn send_step(&mut self, plan: &StepPlan, sampling: &[Sampling]) -> Result<(), ShardError> {
        match &mut self.kind {
            Kind::Remote(session) => session.send_step(plan, sampling),
            Kind::Fake(session) => session.send_step(plan, sampling),
        }
    }

    /// Waits for the result of the oldest unanswered step. With none under way it waits for the session's end.
    ///
    /// Cancel-safe: a call that is dropped loses nothing.
    ///
    /// # Errors
    /// The session is over: a stream broke, a rank broke the protocol or did not answer in time.
    pub async fn next_result(&mut self) -> Result<StepResult, ShardError> {
        match &mut self.kind {
            Kind::Remote(session) => session.next_result().await,
            Kind::Fake(session) => session.next_result().await,
        }
    }

    /// The result of the oldest unanswered step if it is there already.
    ///
    /// # Errors
    /// As [`next_result`](Self::next_result).
    pub fn try_result(&mut self) -> Option<Result<StepResult, ShardError>> {
        match &mut self.kind {
            Kind::Remote(session) => session.next_result().now_or_never(),
            Kind::Fake(session) => session.try_result(),
        }
    }
}
