//! Server-sent events: framing, keep-alive, and the response around them.
//!
//! One event is `data: ` + JSON + an empty line; no `event:`, no `id:`, and no `[DONE]` on native routes.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep_until};
use utoipa::ToSchema;

use crate::json;

/// One event, for the OpenAPI document: there the schema of a stream is the shape of each of its events.
#[derive(ToSchema)]
#[schema(as = ServerSentEvent)]
#[expect(dead_code, reason = "events are written, never made")]
pub(crate) struct SentEvent {
    /// JSON, in a shape that the route names.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// Appends one event.
pub(crate) fn write_event(frame: &mut BytesMut, data: &impl Serialize) {
    frame.put_slice(b"data: ");
    json::write(frame, data);
    frame.put_slice(b"\n\n");
}

/// Status 200 and a body that ends with `frames`. Each frame is written at once and holds whole events.
pub(crate) fn response(
    headers: HeaderMap,
    frames: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = (headers, Body::from_stream(frames)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A comment, which clients skip and proxies take for life.
pub(crate) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// Knows when nothing was sent for some time. Noting a frame costs a store, not a timer operation.
pub(crate) struct KeepAlive {
    /// `None`: silence is fine.
    silence: Option<Duration>,
    last: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl KeepAlive {
    pub fn new(silence: Option<Duration>) -> Self {
        let last = Instant::now();
        Self { silence, last, alarm: Box::pin(sleep_until(last + silence.unwrap_or_default())) }
    }

    /// Something was sent.
    pub fn note(&mut self) {
        self.last = Instant::now();
    }

    /// Waits until a comment is due. May be dropped and called again.
    pub async fn due(&mut self) {
        let Some(silence) = self.silence else { return std::future::pending().await };
        loop {
            self.alarm.as_mut().await;
            let due = self.last + silence;
            self.alarm.as_mut().reset(due.max(Instant::now()));
            if due <= Instant::now() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_data_space_json_and_an_empty_line() {
        let mut frame = BytesMut::new();
        write_event(&mut frame, &"a\nb\u{2028}");
        write_event(&mut frame, &2);
        assert_eq!(&frame[..], b"data: \"a\\nb\\u2028\"\n\ndata: 2\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_comment_is_due_when_nothing_was_sent_for_the_whole_time() {
        let mut keep_alive = KeepAlive::new(Some(Duration::from_secs(15)));
        let begin = Instant::now();
        tokio::time::advance(Duration::from_secs(10)).await;
        keep_alive.note();
        keep_alive.due().await;
        assert_eq!(begin.elapsed().as_secs(), 25);
        keep_alive.note();
        keep_alive.due().await;
        assert_eq!(begin.elapsed().as_secs(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_no_comment_is_ever_due() {
        let mut keep_alive = KeepAlive::new(None);
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, keep_alive.due()).await.is_err());
    }
}
