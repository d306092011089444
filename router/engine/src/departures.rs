//! Who left, and why: requests whose `Generation` was dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use headrace_scheduler::RequestId;
use tokio::sync::Notify;

use crate::telemetry::CancelCause;

/// A list that never refuses an entry, because a drop cannot wait for room. It is bounded all the same: each
/// generation enters at most once.
#[derive(Default)]
pub(crate) struct Departures {
    gone: Mutex<Vec<(RequestId, CancelCause)>>,
    bell: Notify,
}

impl Departures {
    pub(crate) fn leave(&self, request: RequestId, cause: CancelCause) {
        self.lock().push((request, cause));
        self.bell.notify_one();
    }

    /// Waits until somebody left. One waiter only.
    pub(crate) async fn wait(&self) {
        self.bell.notified().await;
    }

    pub(crate) fn take(&self) -> Vec<(RequestId, CancelCause)> {
        std::mem::take(&mut *self.lock())
    }

    /// A push cannot leave the list in a bad state, so poison means nothing here.
    fn lock(&self) -> MutexGuard<'_, Vec<(RequestId, CancelCause)>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
