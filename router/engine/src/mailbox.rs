//! Updates on their way from the driver to one reader. Putting one in and waking the reader are apart, so that a reader
//! finds all that waits for it at once, and pays once for waking, locking and writing.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::generation::Update;

/// Between one writer and one reader.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<State>);

#[derive(Default)]
struct State {
    updates: VecDeque<Update>,
    /// The reader, while it waits.
    waiting: Option<Waker>,
    writer_gone: bool,
    reader_gone: bool,
}

impl Mailbox {
    /// Puts an update in without telling the reader, unless `limit` of them are unread. What a reader that is gone does
    /// not take is dropped.
    pub fn put(&self, update: Update, limit: usize) -> Result<(), Full> {
        let mut state = self.lock();
        let unread = state.updates.len();
        if state.reader_gone {
            return Ok(());
        }
        if unread >= limit {
            return Err(Full { unread });
        }
        state.updates.push_back(update);
        Ok(())
    }

    /// Puts in the last updates, together and whatever is unread, and tells the reader.
    pub fn put_last(&self, updates: impl IntoIterator<Item = Update>) {
        let mut state = self.lock();
        if !state.reader_gone {
            state.updates.extend(updates);
        }
        state.writer_gone = true;
        wake(state);
    }

    /// Tells the reader what there is, if it waits.
    pub fn wake(&self) {
        wake(self.lock());
    }

    /// Nothing more will come. No update says so: the reader must know what that means.
    pub fn writer_leaves(&self) {
        let mut state = self.lock();
        state.writer_gone = true;
        wake(state);
    }

    /// Nothing more will be read.
    pub fn reader_leaves(&self) {
        let unread = {
            let mut state = self.lock();
            state.reader_gone = true;
            std::mem::take(&mut state.updates)
        };
        drop(unread);
    }

    /// Moves all that is there into `taken`, which is empty. False when there was nothing, and never will be.
    pub fn take(&self, taken: &mut VecDeque<Update>) -> bool {
        let mut state = self.lock();
        std::mem::swap(&mut state.updates, taken);
        !taken.is_empty() || !state.writer_gone
    }

    /// As [`take`](Self::take); waits while there is nothing.
    pub fn poll_take(&self, taken: &mut VecDeque<Update>, context: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.lock();
        if !state.updates.is_empty() {
            std::mem::swap(&mut state.updates, taken);
            return Poll::Ready(true);
        }
        if state.writer_gone {
            return Poll::Ready(false);
        }
        match &mut state.waiting {
            Some(waiting) => waiting.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Every change is made whole, so poison means nothing here.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader left as many updates unread as it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub unread: usize,
}

/// Outside of the lock: the reader may run at once.
fn wake(mut state: MutexGuard<'_, State>) {
    let waiting = state.waiting.take();
    drop(state);
    if let Some(waiting) = waiting {
        waiting.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::generation::GenerationError;

    #[derive(Default)]
    struct Bell(AtomicU32);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn update() -> Update {
        Update::Failed(GenerationError::CutOff)
    }

    #[test]
    fn a_reader_that_waits_is_woken_once_for_all_that_was_put_in() {
        let (mailbox, bell, mut taken) = (Mailbox::default(), Arc::new(Bell::default()), VecDeque::new());
        let waker = Waker::from(bell.clone());
        let mut context = Context::from_waker(&waker);
        assert!(mailbox.poll_take(&mut taken, &mut context).is_pending());
        (0..3).for_each(|_| mailbox.put(update(), 8).expect("there is room"));
        assert_eq!(bell.0.load(Ordering::Relaxed), 0);
        mailbox.wake();
        mailbox.wake();
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
        assert_eq!((mailbox.poll_take(&mut taken, &mut context), taken.len()), (Poll::Ready(true), 3));
    }

    #[test]
    fn the_end_gets_through_beyond_the_limit_and_nothing_follows_it() {
        let (mailbox, mut taken) = (Mailbox::default(), VecDeque::new());
        mailbox.put(update(), 1).expect("there is room");
        assert_eq!(mailbox.put(update(), 1), Err(Full { unread: 1 }));
        mailbox.put_last([update(), update()]);
        assert!(mailbox.take(&mut taken));
        assert_eq!(taken.len(), 3);
        taken.clear();
        assert!(!mailbox.take(&mut taken));
    }

    #[test]
    fn a_reader_that_waits_is_woken_by_the_last_updates_themselves() {
        let (mailbox, bell) = (Mailbox::default(), Arc::new(Bell::default()));
        let waker = Waker::from(bell.clone());
        assert!(mailbox.poll_take(&mut VecDeque::new(), &mut Context::from_waker(&waker)).is_pending());
        mailbox.put_last([update()]);
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_nobody_will_read_is_not_kept() {
        let (mailbox, mut taken) = (Mailbox::default(), VecDeque::new());
        mailbox.put(update(), 1).expect("there is room");
        mailbox.reader_leaves();
        assert_eq!(mailbox.put(update(), 1), Ok(()));
        assert!(mailbox.take(&mut taken) && taken.is_empty());
    }
}
