//! Work that may take long on a long text runs here, on threads beside the reactor: streams never wait for it.

use std::sync::Arc;

use headrace_scheduler::Micros;
use headrace_text::{Encoding, Tokenizer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::spawn_blocking;

use crate::error::ApiError;
use crate::invalid::Invalid;
use crate::long_work::LongWork;

/// A pool of `workers` threads with a bounded line in front.
///
/// Long texts have half as many threads of their own (at least one), so a short prompt need not wait for a long one.
pub(crate) struct Tokenization {
    tokenizer: Arc<Tokenizer>,
    workers: Arc<Semaphore>,
    /// `None` where the system had no threads for it: then the workers do all.
    long: Option<LongWork>,
    line: Arc<Semaphore>,
    places: u32,
    /// For long answers under way, and for those who wait to begin one.
    answers: Arc<Semaphore>,
    answers_line: Arc<Semaphore>,
}

impl Tokenization {
    /// `waiting`: callers that may stand in line besides those that are served.
    pub fn new(tokenizer: Arc<Tokenizer>, workers: u32, waiting: u32) -> Self {
        let workers = workers.max(1);
        let places = waiting.saturating_add(workers).min(MAX_PLACES);
        Self {
            tokenizer,
            workers: Arc::new(Semaphore::new(workers as usize)),
            long: long_work((workers as usize / 2).max(1)),
            line: Arc::new(Semaphore::new(places as usize)),
            places,
            answers: Arc::new(Semaphore::new(LONG_ANSWERS)),
            answers_line: Arc::new(Semaphore::new(places as usize)),
        }
    }

    /// What `then` makes of `text` and its tokens, with the special ones that the model expects around a text.
    pub async fn encode<T: Send + 'static>(
        &self,
        text: String,
        then: impl FnOnce(String, Encoding) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let tokenizer = self.tokenizer.clone();
        let bytes = text.len();
        let encode = move || tokenizer.encode(&text, true).map(|encoding| then(text, encoding));
        let made = self.run(bytes, encode).await?;
        Ok(made.map_err(|error| Invalid::Tokenizer { reason: error.to_string() })?)
    }

    /// Runs `work` on `bytes` of input on a thread of the pool.
    ///
    /// A caller that goes away while its work runs does not free the thread: its permits stay with the work.
    pub async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let place = self.try_enter(&self.line)?;
        if let Some(long) = self.long.as_ref().filter(|_| bytes > LONG_BYTES) {
            let guarded = move || {
                let _held = place;
                work()
            };
            return long.run(guarded).await;
        }
        let worker = acquire(&self.workers).await?;
        let guarded = move || {
            let _held = (place, worker);
            work()
        };
        spawn_blocking(guarded).await.map_err(|_| ApiError::Internal("reading the request's text failed"))
    }

    /// Waits for one of the places of long answers, each of which holds a text and its tokens until its client has taken all.
    /// Take it before the text is tokenized: who waits holds a body and no more.
    pub async fn place_of_answer(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let _waiting = self.try_enter(&self.answers_line)?;
        acquire(&self.answers).await
    }

    /// Runs `work` for an answer that has a place, in pieces that stand in no line: it was let in, and is not refused now.
    pub async fn run_admitted<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        match &self.long {
            Some(long) => long.run(work).await,
            None => spawn_blocking(work).await.map_err(|_| ApiError::Internal("writing the tokens failed")),
        }
    }

    fn try_enter(&self, line: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
        line.clone().try_acquire_owned().map_err(|error| match error {
            TryAcquireError::NoPermits => ApiError::Overloaded { limit: self.places, retry_after: SOON },
            TryAcquireError::Closed => CLOSED,
        })
    }
}

fn long_work(threads: usize) -> Option<LongWork> {
    let started = LongWork::start(threads);
    started.inspect_err(|error| tracing::warn!("no threads for long texts, which may slow streams: {error}")).ok()
}

async fn acquire(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
    semaphore.clone().acquire_owned().await.map_err(|_| CLOSED)
}

const CLOSED: ApiError = ApiError::Internal("the tokenizer's pool is closed");

/// A place in line is free again in milliseconds.
const SOON: Micros = Micros(1_000_000);

/// Texts from here on are long: some ten milliseconds of work.
pub(crate) const LONG_BYTES: usize = 64 * 1024;

/// A text of 2 MB has up to two million tokens: such an answer holds 42 MB.
const LONG_ANSWERS: usize = 8;

/// Longest line, whatever `max_concurrent_requests` is: each place may hold a body.
const MAX_PLACES: u32 = 4096;

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn one_worker() -> Tokenization {
        let model = r#"{"type": "BPE", "vocab": {"a": 0}, "merges": []}"#;
        let json = format!(r#"{{"version": "1.0", "added_tokens": [], "model": {model}}}"#);
        Tokenization::new(Arc::new(Tokenizer::from_bytes(json.as_bytes()).unwrap()), 1, 1)
    }

    #[tokio::test]
    async fn who_waits_for_a_place_stands_in_a_line_that_has_an_end() {
        let tokenization = one_worker();
        let mut held = Vec::new();
        for _ in 0..LONG_ANSWERS {
            held.push(tokenization.place_of_answer().await.unwrap());
        }
        let mut waiting = [Box::pin(tokenization.place_of_answer()), Box::pin(tokenization.place_of_answer())];
        assert!(waiting.iter_mut().all(|place| place.now_or_never().is_none()));
        let refused = tokenization.place_of_answer().now_or_never().expect("it is told at once");
        assert!(matches!(refused, Err(ApiError::Overloaded { limit: 2, .. })));
        drop(held);
        for place in waiting {
            drop(place.await.unwrap());
        }
        drop(tokenization.place_of_answer().await.unwrap());
    }

    #[tokio::test]
    async fn where_the_system_has_no_threads_for_long_texts_the_workers_do_all() {
        let tokenization = Tokenization { long: None, ..one_worker() };
        assert_eq!(tokenization.run_admitted(|| 7).await.unwrap(), 7);
        assert_eq!(tokenization.run(2 * LONG_BYTES, || 8).await.unwrap(), 8);
    }
}
