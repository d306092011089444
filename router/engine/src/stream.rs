//! The updates of one generation, from the driver to its caller.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use headrace_scheduler::RequestId;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_stream::Stream;

use crate::departures::Departures;
use crate::generation::{Finished, GeneratedToken, GenerationError, Update};
use crate::telemetry::CancelCause;

/// A running generation. Dropping it cancels the request at once, whatever state it is in.
///
/// Also a [`Stream`] of updates.
pub struct Generation {
    id: RequestId,
    deliveries: mpsc::Receiver<Delivery>,
    /// The second half of a `Delivery::Last`.
    finished: Option<Finished>,
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

/// What the driver sends.
pub(crate) enum Delivery {
    Update(Update),
    /// The last token together with the end, so that no reader sees one without the other.
    Last(Box<(GeneratedToken, Finished)>),
}

impl Generation {
    /// Waits for the next update; `None` after the last one, which is `Finished` or `Failed`.
    ///
    /// When the answer's last token is there, so is its `Finished`: [`try_next`](Self::try_next) right after it yields it.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Update> {
        std::future::poll_fn(|context| self.poll_update(context)).await
    }

    /// The next update if it is there already.
    pub fn try_next(&mut self) -> Option<Update> {
        if let Some(finished) = self.finished.take() {
            return Some(self.end(Update::Finished(finished)));
        }
        match self.deliveries.try_recv() {
            Ok(delivery) => Some(self.unpack(delivery)),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => self.closed(),
        }
    }

    /// The token that was yielded last is the answer's last: [`try_next`](Self::try_next) yields `Finished` now.
    pub fn is_ending(&self) -> bool {
        self.finished.is_some()
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
        if let Some(finished) = self.finished.take() {
            return Poll::Ready(Some(self.end(Update::Finished(finished))));
        }
        let Poll::Ready(delivery) = self.deliveries.poll_recv(context) else {
            return self.poll_expiry(context).map(Some);
        };
        Poll::Ready(match delivery {
            Some(delivery) => Some(self.unpack(delivery)),
            None => self.closed(),
        })
    }

    fn poll_expiry(&mut self, context: &mut Context<'_>) -> Poll<Update> {
        let Some(Expiry { alarm, limit }) = self.expiry.as_mut().filter(|_| !self.ended) else { return Poll::Pending };
        ready!(alarm.as_mut().poll(context));
        let limit = *limit;
        self.departures.leave(self.id, CancelCause::TimedOut);
        Poll::Ready(self.end(Update::Failed(GenerationError::TimedOut { limit })))
    }

    fn unpack(&mut self, delivery: Delivery) -> Update {
        match delivery {
            Delivery::Last(last) => {
                let (token, finished) = *last;
                self.finished = Some(finished);
                Update::Token(token)
            }
            Delivery::Update(update @ (Update::Finished(_) | Update::Failed(_))) => self.end(update),
            Delivery::Update(update) => update,
        }
    }

    /// The driver let go of the stream: after an end, as it should; without one, the driver itself is gone.
    fn closed(&mut self) -> Option<Update> {
        (!self.ended).then(|| {
            let reason = "the engine ended before the answer did".to_owned();
            self.end(Update::Failed(GenerationError::ShardDied(reason)))
        })
    }

    fn end(&mut self, update: Update) -> Update {
        self.ended = true;
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
    sender: mpsc::Sender<Delivery>,
    buffer: usize,
}

/// The reader left the whole buffer unread.
#[derive(Debug)]
pub(crate) struct Full {
    pub unread: usize,
}

impl Deliverer {
    /// Both ends of a generation whose reader may leave `buffer` updates unread.
    pub(crate) fn new(id: RequestId, buffer: usize, departures: Arc<Departures>) -> (Self, Generation) {
        let buffer = buffer.max(1);
        // One place more, which only the end may take: it must always get through.
        let (sender, deliveries) = mpsc::channel(buffer + 1);
        let cause = CancelCause::ClientLeft;
        (
            Self { sender, buffer },
            Generation { id, deliveries, finished: None, departures, ended: false, cause, expiry: None },
        )
    }

    /// Delivers an update that is not the end. A reader that left is no error here: its departure is on its way.
    pub(crate) fn send(&self, update: Update) -> Result<(), Full> {
        let free = self.sender.capacity();
        if free <= 1 && !self.sender.is_closed() {
            return Err(Full { unread: self.buffer + 1 - free });
        }
        // Only this task sends, so the place that was free still is; the error of a closed stream is expected.
        let _ = self.sender.try_send(Delivery::Update(update));
        Ok(())
    }

    /// Delivers the end, with the last token where there is one.
    pub(crate) fn finish(self, last: Option<GeneratedToken>, finished: Finished) {
        self.send_end(match last {
            Some(token) => Delivery::Last(Box::new((token, finished))),
            None => Delivery::Update(Update::Finished(finished)),
        });
    }

    pub(crate) fn fail(self, error: GenerationError) {
        self.send_end(Delivery::Update(Update::Failed(error)));
    }

    fn send_end(self, delivery: Delivery) {
        let _ = self.sender.try_send(delivery); // Fails only when nobody reads any more.
    }
}
