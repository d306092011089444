//! A streamed answer: the engine's updates as TGI's events.
//!
//! What is wrong with a request is an event too, with status 200, as clients of these routes expect. That includes an
//! overload that is known before the first byte (its `retry-after` is among the headers); only a server that shuts down
//! answers 503, so that balancers turn elsewhere. Updates that wait together go out in one write.

use std::convert::Infallible;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures::stream;
use headrace_engine::{Finished, GeneratedToken, Generation, Update};

use crate::admission::{Admission, admit};
use crate::call::Call;
use crate::error::ApiError;
use crate::headers;
use crate::parameters::Parameters;
use crate::sse::{self, KeepAlive};
use crate::validation::Delivery;
use crate::wire::{StreamDetails, StreamEvent, Token, finish_reason_name};

/// Streams the answer of a request.
pub(crate) async fn respond(mut call: Call, inputs: String, parameters: Parameters) -> Response {
    let mut headers = headers::asked(call.state(), inputs.chars().count());
    match admit(&mut call, inputs, &parameters, Delivery::Stream).await {
        Ok(admission) => match Events::new(call, admission) {
            Ok(events) => sse::response(headers, events.into_frames()),
            Err(error) => error.into_response(),
        },
        Err(error @ ApiError::ShuttingDown) => {
            call.failed(&error);
            error.into_response()
        }
        Err(error) => {
            call.failed(&error);
            if let Some(seconds) = error.retry_after() {
                headers.insert(header::RETRY_AFTER, seconds);
            }
            let mut frame = BytesMut::new();
            sse::write_event(&mut frame, &error.body());
            sse::response(headers, stream::iter([Ok(frame.freeze())]))
        }
    }
}

/// The state between two frames.
struct Events {
    generation: Generation,
    call: Call,
    /// The prompt's text where the answer shows it, else empty.
    prepend: String,
    details: bool,
    seed: Option<u64>,
    input_length: u32,
    /// Events written so far.
    index: u32,
    /// A token whose event waits until it is known whether it is the last: that one's event is special.
    held: Option<GeneratedToken>,
    frame: BytesMut,
    keep_alive: KeepAlive,
    ended: bool,
}

impl Events {
    fn new(call: Call, admission: Admission) -> Result<Self, ApiError> {
        let Admission { mut generations, checked, inputs, prompt } = admission;
        let generation = generations.pop().ok_or(ApiError::IncompleteStream)?;
        Ok(Self {
            generation,
            call,
            prepend: if checked.return_full_text == Some(true) { inputs } else { String::new() },
            details: checked.details,
            seed: checked.shown_seed(0),
            input_length: prompt.len() as u32,
            index: 0,
            held: None,
            frame: BytesMut::new(),
            keep_alive: KeepAlive::new(),
            ended: false,
        })
    }

    fn into_frames(self) -> impl stream::Stream<Item = Result<Bytes, Infallible>> + Send {
        stream::unfold(Box::new(self), |mut events| async {
            let frame = events.next_frame().await?;
            Some((Ok(frame), events))
        })
    }

    /// All updates that are there; waits for one if there is none. `None` after the end.
    async fn next_frame(&mut self) -> Option<Bytes> {
        self.take_ready();
        while self.frame.is_empty() {
            if self.ended {
                return None;
            }
            let update = tokio::select! {
                biased;
                update = self.generation.next() => update,
                () = self.keep_alive.due() => {
                    self.keep_alive.note();
                    return Some(sse::COMMENT);
                }
            };
            self.take(update);
            self.take_ready();
        }
        self.keep_alive.note();
        Some(self.frame.split().freeze())
    }

    /// Takes updates until none is there or the frame is full. The last token comes together with the end, so a token
    /// that nothing follows is not the last.
    fn take_ready(&mut self) {
        while !self.ended && self.frame.len() < FRAME_BYTES {
            match self.generation.try_next() {
                Some(update) => self.take(Some(update)),
                None => return self.release(),
            }
        }
    }

    fn take(&mut self, update: Option<Update>) {
        match update {
            // Streams don't ask for it.
            Some(Update::Prompt(_)) => {}
            Some(Update::Token(token)) => {
                self.release();
                self.held = Some(token);
            }
            Some(Update::Finished(finished)) => self.finish(&finished),
            Some(Update::Failed(error)) => self.fail(error.into()),
            None => self.fail(ApiError::IncompleteStream),
        }
    }

    /// Writes the held token's event: it is not the last.
    fn release(&mut self) {
        if let Some(token) = self.held.take() {
            self.write(&token, None, None);
        }
    }

    fn finish(&mut self, finished: &Finished) {
        let Some(last) = self.held.take() else {
            return self.fail(ApiError::IncompleteStream);
        };
        self.ended = true;
        self.call.succeeded(finished, self.seed);
        let details = self.details.then(|| StreamDetails {
            finish_reason: finish_reason_name(finished.reason),
            generated_tokens: finished.generated.0,
            seed: self.seed,
            input_length: self.input_length,
        });
        let mut text = std::mem::take(&mut self.prepend);
        text.push_str(&finished.text);
        self.write(&last, Some(&text), details);
    }

    fn fail(&mut self, error: ApiError) {
        self.ended = true;
        self.release();
        self.call.failed(&error);
        sse::write_event(&mut self.frame, &error.body());
    }

    fn write(&mut self, token: &GeneratedToken, generated_text: Option<&str>, details: Option<StreamDetails>) {
        self.index += 1;
        let event = StreamEvent {
            index: self.index,
            token: Token::sampled(token),
            top_tokens: Token::top(&token.top),
            generated_text,
            details,
        };
        sse::write_event(&mut self.frame, &event);
    }
}

impl Drop for Events {
    /// Before its end only when the connection is gone: by the client's doing, or because it took nothing.
    fn drop(&mut self) {
        if !self.ended && self.call.stalled() {
            self.generation.reader_is_slow();
        }
    }
}

/// A frame ends after the event that passes this.
const FRAME_BYTES: usize = 32 * 1024;
