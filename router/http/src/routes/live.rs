//! `GET /live`: how busy the server is, once a second, as server-sent events: what the page at `/` draws.
//!
//! Each viewer reads numbers that the engine publishes anyway: nobody watching costs nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream};
use headrace_engine::{EngineSnapshot, EngineState};
use headrace_telemetry::{Gauge, table};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};

use crate::error::{ApiError, ErrorBody};
use crate::openapi::errors;
use crate::sse::{self, SentEvent};
use crate::state::ServerState;

/// How busy the server is, once a second.
#[utoipa::path(
    get, path = "/live", tag = "Server", operation_id = "live_view",
    responses(
        (status = OK, description = "Server-sent events, as long as the server and the client are there: the data of each \
            is a `LiveSample`", body = SentEvent, content_type = "text/event-stream"),
        LiveErrors,
    )
)]
pub(crate) async fn live(State(state): State<ServerState>) -> Response {
    match state.viewers.enter() {
        Some(viewer) => sse::response(HeaderMap::new(), samples(state, viewer)),
        None => ApiError::TooManyViewers { limit: MAX_VIEWERS }.into_response(),
    }
}

/// Who watches.
pub(crate) struct Viewers {
    places: Arc<Semaphore>,
    shown: Gauge,
}

/// A place that is given back when the viewer goes.
struct Viewer {
    _place: OwnedSemaphorePermit,
    shown: Gauge,
}

impl Viewers {
    pub fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MAX_VIEWERS)), shown: table::LIVE_VIEWERS.handle() }
    }

    fn enter(&self) -> Option<Viewer> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        self.shown.increment(1.0);
        Some(Viewer { _place: place, shown: self.shown.clone() })
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.shown.decrement(1.0);
    }
}

pub(crate) struct LiveErrors;

impl IntoResponses for LiveErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        errors::<ErrorBody>(&[(StatusCode::TOO_MANY_REQUESTS, "All places of viewers are taken")])
    }
}

/// What the page shows. Counters since the start; their differences are rates.
#[derive(Serialize, ToSchema)]
#[schema(as = LiveSample)]
pub(crate) struct Sample {
    /// Since this viewer came.
    elapsed_ms: u64,
    #[schema(example = "serving")]
    state: &'static str,
    /// Rows of the batch that are held: `prefilling` of them compute their prompt, the others decode.
    running: u64,
    prefilling: u64,
    #[schema(required = true)]
    rows: Option<u32>,
    waiting: u64,
    blocks_held: u32,
    blocks_cached: u32,
    blocks_total: u32,
    prompt_tokens: u64,
    generated_tokens: u64,
}

impl Sample {
    fn of(state: &ServerState, began: Instant) -> Self {
        let EngineSnapshot { running, prefilling, waiting, blocks_held, blocks_cached, blocks_total, totals, .. } =
            state.engine.snapshot();
        Self {
            elapsed_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            state: match state.engine.state() {
                EngineState::Serving => "serving",
                EngineState::Draining => "draining",
                EngineState::Dead(_) => "dead",
            },
            running,
            prefilling,
            rows: state.info.max_batch_size,
            waiting,
            blocks_held: blocks_held.0,
            blocks_cached: blocks_cached.0,
            blocks_total: blocks_total.0,
            prompt_tokens: totals.prompt_tokens,
            generated_tokens: totals.generated_tokens,
        }
    }

    /// There is nothing more to see, and an open stream would hold up the server's end.
    fn is_last(&self) -> bool {
        match self.state {
            "serving" => false,
            "draining" => self.running + self.waiting == 0,
            _ => true,
        }
    }
}

fn samples(state: ServerState, viewer: Viewer) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    struct Watch {
        state: ServerState,
        _viewer: Viewer,
        clock: Interval,
        began: Instant,
    }
    let mut clock = interval(PERIOD);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watch = Watch { state, _viewer: viewer, clock, began: Instant::now() };
    stream::unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        watch.clock.tick().await;
        let sample = Sample::of(&watch.state, watch.began);
        let mut frame = BytesMut::new();
        sse::write_event(&mut frame, &sample);
        Some((Ok(frame.freeze()), (!sample.is_last()).then_some(watch)))
    })
}

const PERIOD: Duration = Duration::from_secs(1);
/// People, not clients: each holds a connection.
const MAX_VIEWERS: usize = 32;
