//! Who left: requests whose `Generation` was dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use headrace_scheduler::RequestId;
use tokio::sync::Notify;

/// A list that never refuses an entry, because a drop cannot wait for room. It is bounded all the same: each
/// generation enters at most once.
#[derive(Default)]
pub(crate) struct Departures {
    gone: Mutex<Vec<RequestId>>,
    bell: Notify,
}

impl Departures {
    pub(crate) fn leave(&self, request: RequestId) {
        self.lock().push(request);
        self.bell.notify_one();
    }

    /// Waits until somebody left. One waiter only.
    pub(crate) async fn wait(&self) {
        self.bell.notified().await;
    }

    pub(crate) fn take(&self) -> Vec<RequestId> {
        std::mem::take(&mut *self.lock())
    }

    /// A push cannot leave the list in a bad state, so poison means nothing here.
    fn lock(&self) -> MutexGuard<'_, Vec<RequestId>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
