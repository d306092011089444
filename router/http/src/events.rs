//! A streamed answer of a native route: the engine's updates as TGI's events.
//!
//! What is wrong with a request is an event too, with status 200, as clients of these routes expect. That includes an
//! overload that is known before the first byte (its `retry-after` is among the headers); only a server that shuts down
//! answers 503, so that balancers turn elsewhere.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures::stream;
use headrace_engine::{Finished, GeneratedToken};

use crate::admission::{Admitted, admit};
use crate::call::Call;
use crate::error::ApiError;
use crate::frames::{Events, Frames};
use crate::headers;
use crate::parameters::Parameters;
use crate::sse;
use crate::validation::{Checked, Delivery};
use crate::wire::{StreamDetails, StreamEvent, Token, finish_reason_name};

/// Streams the answer of a request.
pub(crate) async fn respond(mut call: Call, inputs: String, parameters: Parameters) -> Response {
    let mut headers = headers::asked(call.state(), inputs.chars().count());
    match admit(&mut call, inputs, &parameters, Delivery::Stream).await {
        Ok((checked, mut admitted)) => {
            let generations = std::mem::take(&mut admitted.generations);
            let events = TokenEvents::new(&checked, admitted);
            sse::response(headers, Frames::new(events, call, generations).into_stream())
        }
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

/// One event per token; the last one has the whole text, too.
struct TokenEvents {
    /// The prompt's text where the answer shows it, else empty.
    prepend: String,
    details: bool,
    seed: Option<u64>,
    input_length: u32,
    /// Events written so far.
    index: u32,
}

impl TokenEvents {
    fn new(checked: &Checked, admitted: Admitted) -> Self {
        Self {
            input_length: admitted.tokens.len() as u32,
            prepend: if checked.return_full_text == Some(true) { admitted.text } else { String::new() },
            details: checked.details,
            seed: checked.shown_seed(0),
            index: 0,
        }
    }

    fn write(
        &mut self,
        frame: &mut BytesMut,
        token: &GeneratedToken,
        generated_text: Option<&str>,
        details: Option<StreamDetails>,
    ) {
        self.index += 1;
        let event = StreamEvent {
            index: self.index,
            token: Token::sampled(token),
            top_tokens: Token::top(&token.top),
            generated_text,
            details,
        };
        sse::write_event(frame, &event);
    }
}

impl Events for TokenEvents {
    /// Streams don't ask for it.
    fn prompt(&mut self, _: usize, _: Vec<f32>) {}

    fn token(&mut self, frame: &mut BytesMut, _: usize, token: &GeneratedToken) {
        self.write(frame, token, None, None);
    }

    fn last(&mut self, frame: &mut BytesMut, _: usize, token: &GeneratedToken, finished: &Finished) {
        let details = self.details.then(|| StreamDetails {
            finish_reason: finish_reason_name(finished.reason),
            generated_tokens: finished.generated.0,
            seed: self.seed,
            input_length: self.input_length,
        });
        let mut text = std::mem::take(&mut self.prepend);
        text.push_str(&finished.text);
        self.write(frame, token, Some(&text), details);
    }

    fn end(&mut self, _: &mut BytesMut) {}

    fn failed(&mut self, frame: &mut BytesMut, error: &ApiError) {
        sse::write_event(frame, &error.body());
    }

    fn seed(&self) -> Option<u64> {
        self.seed
    }
}
