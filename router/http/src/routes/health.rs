//! `GET /health`, `/ping` and `/`: 200 and nothing else, or 503 and why.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, Response};

use crate::error::{ApiError, ErrorBody};
use crate::openapi;
use crate::state::ServerState;

/// Whether the engine and every shard answer.
#[utoipa::path(get, path = "/health", tag = "Server", responses((status = OK, description = "They do"), HealthErrors))]
pub(crate) async fn health(State(state): State<ServerState>) -> Result<StatusCode, ApiError> {
    match state.engine.healthy().await {
        Ok(()) => Ok(StatusCode::OK),
        Err(reason) => Err(ApiError::Unhealthy { reason }),
    }
}

/// `/health`, under the name that SageMaker asks for.
#[utoipa::path(get, path = "/ping", tag = "Server", responses((status = OK, description = "Healthy"), HealthErrors))]
pub(crate) async fn ping(state: State<ServerState>) -> Result<StatusCode, ApiError> {
    health(state).await
}

/// `/health`, under the shortest name.
#[utoipa::path(get, path = "/", tag = "Server", responses((status = OK, description = "Healthy"), HealthErrors))]
pub(crate) async fn root(state: State<ServerState>) -> Result<StatusCode, ApiError> {
    health(state).await
}

struct HealthErrors;

impl IntoResponses for HealthErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        openapi::errors::<ErrorBody>(&[(
            StatusCode::SERVICE_UNAVAILABLE,
            "Somebody does not answer; the body says who",
        )])
    }
}
