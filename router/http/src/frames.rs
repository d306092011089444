//! A streamed answer: the updates of all generations of a request, as an API's events, in frames.
//!
//! Updates that wait together go out in one write. Generations that are a step apart in nothing come in their order, one
//! token each, then the next one each; a slow one holds nobody back.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use futures::stream::{self, StreamExt};
use headrace_engine::{Finished, GeneratedToken, Generation, Update};

use crate::call::{Call, Summary};
use crate::error::ApiError;
use crate::sse::{self, KeepAlive};

/// What an API writes: each method appends whole events to the frame. `of` counts generations from 0.
pub(crate) trait Events: Send + 'static {
    /// Log-probabilities of the prompt's tokens: before the first token, and only where they were asked for.
    fn prompt(&mut self, of: usize, logprobs: Vec<f32>);
    /// A token that is not its answer's last.
    fn token(&mut self, frame: &mut BytesMut, of: usize, token: &GeneratedToken);
    /// An answer's last token.
    fn last(&mut self, frame: &mut BytesMut, of: usize, token: &GeneratedToken, finished: &Finished);
    /// What clients, log and metrics are told of how an answer ended, where that is not what the engine says.
    fn told_of(&self, _: &mut Finished) {}
    /// All answers are there.
    fn end(&mut self, frame: &mut BytesMut);
    /// The request failed after the stream had begun.
    fn failed(&mut self, frame: &mut BytesMut, error: &ApiError);
    /// What the log shows.
    fn seed(&self) -> Option<u64>;
}

/// The state between two frames.
pub(crate) struct Frames<E> {
    events: E,
    call: Call,
    sources: Vec<Source>,
    /// At most one update of each generation; kept for its allocation.
    round: Vec<Arrival>,
    summary: Option<Summary>,
    frame: BytesMut,
    keep_alive: KeepAlive,
    /// Something was sent, the response's head at least: an error can only be an event from now on.
    begun: bool,
    /// What ended it before that.
    refusal: Option<ApiError>,
    ended: bool,
}

struct Source {
    generation: Generation,
    /// Tokens that came.
    tokens: u32,
    ended: bool,
}

/// The `nth` token of a generation, or what comes instead of one.
struct Arrival {
    nth: u32,
    of: usize,
    update: Update,
}

impl<E: Events> Frames<E> {
    pub fn new(events: E, call: Call, generations: Vec<Generation>) -> Self {
        let source = |generation| Source { generation, tokens: 0, ended: false };
        Self {
            events,
            keep_alive: KeepAlive::new(call.state().surface.sse_ping),
            call,
            round: Vec::with_capacity(generations.len()),
            sources: generations.into_iter().map(source).collect(),
            summary: None,
            frame: BytesMut::new(),
            begun: false,
            refusal: None,
            ended: false,
        }
    }

    /// All frames. Whatever goes wrong is an event.
    pub fn into_stream(mut self) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        self.begun = true;
        stream::unfold(Box::new(self), |mut frames| async {
            let frame = frames.next_frame().await?;
            Some((Ok(frame), frames))
        })
    }

    /// All frames, once the first one is there; or why there is none. A comment is a frame, so that nobody between here
    /// and the client takes a long silence for the end.
    pub async fn begin(mut self) -> Result<impl Stream<Item = Result<Bytes, Infallible>> + Send, ApiError> {
        let first = self.next_frame().await;
        match self.refusal.take() {
            Some(error) => Err(error),
            None => Ok(stream::iter(first.map(Ok)).chain(self.into_stream())),
        }
    }

    /// All updates that are there; waits for some if there are none. `None` after the end.
    async fn next_frame(&mut self) -> Option<Bytes> {
        self.take_ready();
        while self.frame.is_empty() {
            if self.ended {
                return None;
            }
            let Self { sources, round, keep_alive, .. } = self;
            tokio::select! {
                biased;
                () = std::future::poll_fn(|context| poll_round(sources, round, context)) => {}
                () = keep_alive.due() => {
                    keep_alive.note();
                    return Some(sse::COMMENT);
                }
            }
            self.write_round();
            self.take_ready();
        }
        self.keep_alive.note();
        Some(self.frame.split().freeze())
    }

    /// Takes updates until none is there or the frame is full.
    fn take_ready(&mut self) {
        while !self.ended && self.frame.len() < FRAME_BYTES {
            take_round(&mut self.sources, &mut self.round, |source| source.generation.try_next());
            if self.round.is_empty() {
                return;
            }
            self.write_round();
        }
    }

    /// Generations that started together are at the same token here, and those of one round may still be a token apart
    /// when it was taken in the middle of a delivery.
    fn write_round(&mut self) {
        let mut round = std::mem::take(&mut self.round);
        round.sort_unstable_by_key(|arrival| (arrival.nth, arrival.of));
        for Arrival { of, update, .. } in round.drain(..) {
            if !self.ended {
                self.take(of, update);
            }
        }
        self.round = round;
    }

    fn take(&mut self, of: usize, update: Update) {
        match update {
            Update::Prompt(logprobs) => self.events.prompt(of, logprobs),
            Update::Token(token) if self.sources[of].generation.is_ending() => self.finish(of, &token),
            Update::Token(token) => self.events.token(&mut self.frame, of, &token),
            Update::Failed(error) => self.fail(error.into()),
            // The end comes together with a token.
            Update::Finished(_) => self.fail(ApiError::IncompleteStream),
        }
    }

    fn finish(&mut self, of: usize, last: &GeneratedToken) {
        let source = &mut self.sources[of];
        let Some(Update::Finished(mut finished)) = source.generation.try_next() else {
            return self.fail(ApiError::IncompleteStream);
        };
        source.ended = true;
        self.events.told_of(&mut finished);
        let seed = self.events.seed();
        self.summary.get_or_insert_with(|| Summary::new(seed)).add(&finished);
        self.events.last(&mut self.frame, of, last, &finished);
        if self.sources.iter().all(|source| source.ended) {
            self.ended = true;
            self.events.end(&mut self.frame);
            if let Some(summary) = &self.summary {
                self.call.succeeded(summary);
            }
        }
    }

    fn fail(&mut self, error: ApiError) {
        self.ended = true;
        self.call.failed(&error);
        if self.begun || !self.frame.is_empty() {
            self.events.failed(&mut self.frame, &error);
        } else {
            self.refusal = Some(error);
        }
    }
}

impl<E> Drop for Frames<E> {
    /// Before its end only when the connection is gone: by the client's doing, or because it took nothing.
    fn drop(&mut self) {
        if !self.ended && self.call.stalled() {
            self.sources.iter_mut().for_each(|source| source.generation.reader_is_slow());
        }
    }
}

/// Waits until an update is there.
fn poll_round(sources: &mut [Source], round: &mut Vec<Arrival>, context: &mut Context<'_>) -> Poll<()> {
    take_round(sources, round, |source| match Pin::new(&mut source.generation).poll_next(context) {
        Poll::Ready(update) => update,
        Poll::Pending => None,
    });
    if round.is_empty() { Poll::Pending } else { Poll::Ready(()) }
}

/// Takes one update of each generation that has one.
///
/// Asks the last generation first: the engine delivers a step's tokens in the generations' order, so what is there for
/// one is there for those before it.
fn take_round(sources: &mut [Source], round: &mut Vec<Arrival>, mut next: impl FnMut(&mut Source) -> Option<Update>) {
    for (of, source) in sources.iter_mut().enumerate().rev().filter(|(_, source)| !source.ended) {
        let Some(update) = next(source) else { continue };
        source.tokens += u32::from(matches!(update, Update::Token(_)));
        round.push(Arrival { nth: source.tokens, of, update });
    }
}

/// A frame ends after the round that passes this.
const FRAME_BYTES: usize = 32 * 1024;
