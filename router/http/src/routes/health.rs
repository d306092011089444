//! `GET /health`, `/ping` and `/`: 200 and nothing else, or 503 and why; so do `/livez` and `/readyz`, for orchestrators.
//!
//! The first three ask the engine and every shard, as TGI does. The last two answer from what was last seen: at once,
//! however much there is to do. A server that is not alive should be restarted; one that is alive but not ready (it
//! loads, it drains, its shard does not answer) should only be sent nothing.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use utoipa::IntoResponses;
use utoipa::openapi::{self, RefOr};

use crate::error::{ApiError, ErrorBody};
use crate::openapi::errors;
use crate::routes::page;
use crate::state::ServerState;

/// Whether the engine and every shard answer.
#[utoipa::path(get, path = "/health", tag = "Server", responses((status = OK, description = "They do"), HealthErrors))]
pub(crate) async fn health(State(state): State<ServerState>) -> Result<StatusCode, ApiError> {
    probed(state.engine.healthy().await)
}

/// `/health`, under the name that SageMaker asks for.
#[utoipa::path(get, path = "/ping", tag = "Server", responses((status = OK, description = "Healthy"), HealthErrors))]
pub(crate) async fn ping(state: State<ServerState>) -> Result<StatusCode, ApiError> {
    health(state).await
}

/// `/health`, under the shortest name; for browsers, a page to try the server and see how busy it is.
#[utoipa::path(
    get, path = "/", tag = "Server",
    responses(
        (status = OK, description = "Healthy, and nothing else; or the page, where `accept` names `text/html`",
            body = String, content_type = "text/html"),
        HealthErrors,
    )
)]
pub(crate) async fn root(state: State<ServerState>, headers: HeaderMap) -> Response {
    if page::is_wanted(&headers) { page::page() } else { health(state).await.into_response() }
}

/// Whether the process and its engine turn. If not, restart it.
#[utoipa::path(get, path = "/livez", tag = "Server", responses((status = OK, description = "Alive"), HealthErrors))]
pub(crate) async fn livez(State(state): State<ServerState>) -> Result<StatusCode, ApiError> {
    probed(state.engine.alive())
}

/// Whether requests are taken and every shard answers. If not, send them elsewhere.
#[utoipa::path(get, path = "/readyz", tag = "Server", responses((status = OK, description = "Ready"), HealthErrors))]
pub(crate) async fn readyz(State(state): State<ServerState>) -> Result<StatusCode, ApiError> {
    probed(state.engine.ready())
}

fn probed(outcome: Result<(), String>) -> Result<StatusCode, ApiError> {
    outcome.map(|()| StatusCode::OK).map_err(|reason| ApiError::Unhealthy { reason })
}

pub(crate) struct HealthErrors;

impl IntoResponses for HealthErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        errors::<ErrorBody>(&[(StatusCode::SERVICE_UNAVAILABLE, "Somebody does not answer; the body says who")])
    }
}
