//! The HTTP surface: TGI's routes and OpenAI's, TGI's errors, its server-sent events and its metrics. Nothing here schedules.
//!
//! The life of a request, in the order of the files:
//!
//! 1. [`serve`] accepts a connection; [`router()`] finds the route (`routes/`, one file per family).
//! 2. `payload` reads the body within its limits; `parameters` is the JSON as it was sent.
//!    `terms` are its tenant, priority and deadline, from headers and body.
//! 3. `validation` turns it into what was meant, or into TGI's sentence about what is wrong (`invalid`).
//! 4. `admission` takes a permit (`permits`), tokenizes off the reactor (`tokenization`) and hands the request to the engine.
//! 5. `collect` waits for whole answers and `answer` (with `best_of`) shows one; `frames` merges the updates of a stream
//!    and `events` writes them. `wire` holds the JSON shapes of native routes.
//!    `openai` has all of that for OpenAI's routes.
//! 6. `call` notes how it ended: metrics and one log line; `refusals` counts what was refused before it was a call.
//!    `error` is the one place that maps errors to HTTP.
//!
//! A client that leaves drops the response, which drops the `Generation`, which cancels: nothing here has to notice.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails panics"))]

mod admission;
mod answer;
mod auth;
mod best_of;
mod call;
mod chat;
mod collect;
mod content_coding;
mod error;
mod events;
mod frames;
mod front;
mod headers;
mod in_path;
mod invalid;
mod json;
mod long_work;
mod metrics;
mod numbers;
mod openai;
mod openapi;
mod parameters;
mod payload;
mod permits;
mod preflight;
mod refusals;
mod request_id;
mod router;
mod routes;
mod serve;
mod sse;
mod stall;
mod state;
mod surface;
mod terms;
mod token_list;
mod tokenization;
mod traces;
mod validation;
mod vertex_ai;
mod wire;
mod within;

pub use axum::Router;
pub use axum::http::HeaderValue;

pub use headrace_telemetry::{Exporter, InstallMetricsError, MetricsHandle};

pub use crate::auth::ApiKeys;
pub use crate::front::Front;
pub use crate::metrics::install_metrics;
pub use crate::openapi::openapi_json;
pub use crate::router::router;
pub use crate::routes::metrics::metrics_router;
pub use crate::serve::serve;
pub use crate::state::{Limits, ServerInfo, ServerParts, ServerState};
pub use crate::surface::Surface;
pub use crate::vertex_ai::VertexAi;
