//! The updates of one generation, from the driver to its caller.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use headrace_scheduler::RequestId;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_stream::Stream;

use crate::departures::Departures;
use crate::generation::{Finished, GeneratedToken, GenerationError, Update};
use crate::mailbox::{Full, Mailbox};
use crate::telemetry::CancelCause;

/// A running generation. Dropping it cancels the request at once, whatever state it is in.
///
/// Also a [`Stream`] of updates.
pub struct Generation {
    id: RequestId,
    mailbox: Arc<Mailbox>,
    /// Taken out, but not yielded yet.
    taken: VecDeque<Update>,
    departures: Arc<Departures>,
    ended: bool,
    /// What its drop means while it runs.
    cause: CancelCause,
    expiry: Option<Expiry>,
}

/// When a generation ends, whatever it has by then.
struct Expiry {
    alarm: Pin<Box<Sleep>>,
    /// What the reader is told it was allowed.
    limit: Duration,
}

impl Generation {
    /// Its number in the scheduler.
    pub(crate) fn request(&self) -> RequestId {
        self.id
    }

    /// Waits for the next update; `None` after the last one, which is `Finished` or `Failed`.
    ///
    /// When the answer's last token is there, so is its `Finished`: [`try_next`](Self::try_next) right after it yields it.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Update> {
        std::future::poll_fn(|context| self.poll_update(context)).await
    }

    /// The next update if it is there already.
    pub fn try_next(&mut self) -> Option<Update> {
        if self.taken.is_empty() && !self.mailbox.take(&mut self.taken) {
            return self.closed();
        }
        self.taken.pop_front().map(|update| self.note(update))
    }

    /// The token that was yielded last is the answer's last: [`try_next`](Self::try_next) yields `Finished` now.
    pub fn is_ending(&self) -> bool {
        matches!(self.taken.front(), Some(Update::Finished(_)))
    }

    /// Its reader took nothing for too long: when it is dropped, that counts as the reason and not that somebody left.
    pub fn reader_is_slow(&mut self) {
        self.cause = CancelCause::SlowReader;
    }

    /// Ends it at `moment` if it still runs then: the request is cancelled, and the last update says that it was allowed
    /// `limit`. Noticed by who waits for the next update.
    pub fn expire_at(&mut self, moment: Instant, limit: Duration) {
        self.expiry = Some(Expiry { alarm: Box::pin(sleep_until(moment)), limit });
    }

    fn poll_update(&mut self, context: &mut Context<'_>) -> Poll<Option<Update>> {
        if self.taken.is_empty() {
            match self.mailbox.poll_take(&mut self.taken, context) {
                Poll::Pending => return self.poll_expiry(context).map(Some),
                Poll::Ready(false) => return Poll::Ready(self.closed()),
                Poll::Ready(true) => {}
            }
        }
        Poll::Ready(self.taken.pop_front().map(|update| self.note(update)))
    }

    fn poll_expiry(&mut self, context: &mut Context<'_>) -> Poll<Update> {
        let Some(Expiry { alarm, limit }) = self.expiry.as_mut().filter(|_| !self.ended) else { return Poll::Pending };
        ready!(alarm.as_mut().poll(context));
        let limit = *limit;
        self.departures.leave(self.id, CancelCause::TimedOut);
        Poll::Ready(self.note(Update::Failed(GenerationError::TimedOut { limit })))
    }

    /// The driver let go of the stream: after an end, as it should; without one, the driver itself is gone.
    fn closed(&mut self) -> Option<Update> {
        (!self.ended).then(|| {
            let reason = "the engine ended before the answer did".to_owned();
            self.note(Update::Failed(GenerationError::ShardDied(reason)))
        })
    }

    fn note(&mut self, update: Update) -> Update {
        self.ended |= matches!(update, Update::Finished(_) | Update::Failed(_));
        update
    }
}

impl Stream for Generation {
    type Item = Update;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Update>> {
        self.get_mut().poll_update(context)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.mailbox.reader_leaves();
        if !self.ended {
            self.departures.leave(self.id, self.cause);
        }
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("id", &self.id).field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// The driver's end of a generation.
pub(crate) struct Deliverer {
    mailbox: Arc<Mailbox>,
    buffer: usize,
}

impl Deliverer {
    /// Both ends of a generation whose reader may leave `buffer` updates unread.
    pub(crate) fn new(id: RequestId, buffer: usize, departures: Arc<Departures>) -> (Self, Generation) {
        let mailbox = Arc::<Mailbox>::default();
        let (taken, cause) = (VecDeque::new(), CancelCause::ClientLeft);
        let generation =
            Generation { id, mailbox: mailbox.clone(), taken, departures, ended: false, cause, expiry: None };
        (Self { mailbox, buffer: buffer.max(1) }, generation)
    }

    /// Delivers an update that is not the end; the reader finds it when it is next [woken](Self::wake), or looks by
    /// itself. A reader that left is no error here: its departure is on its way.
    pub(crate) fn send(&self, update: Update) -> Result<(), Full> {
        self.mailbox.put(update, self.buffer)
    }

    /// Tells the reader of what was sent.
    pub(crate) fn wake(&self) {
        self.mailbox.wake();
    }

    /// Delivers the end, with the last token where there is one: no reader sees one without the other.
    pub(crate) fn finish(self, last: Option<GeneratedToken>, finished: Finished) {
        self.mailbox.put_last(last.map(Update::Token).into_iter().chain([Update::Finished(finished)]));
    }

    pub(crate) fn fail(self, error: GenerationError) {
        self.mailbox.put_last([Update::Failed(error)]);
    }
}

impl Drop for Deliverer {
    /// After an end nobody hears of it any more.
    fn drop(&mut self) {
        self.mailbox.writer_leaves();
    }
}
