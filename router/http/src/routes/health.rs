//! `GET /health`, `/ping` and `/`: 200 and nothing else, or 503 and why.

use axum::extract::State;
use axum::http::StatusCode;

use crate::error::ApiError;
use crate::state::ServerState;

pub(crate) async fn health(State(state): State<ServerState>) -> Result<StatusCode, ApiError> {
    match state.engine.healthy().await {
        Ok(()) => Ok(StatusCode::OK),
        Err(reason) => Err(ApiError::Unhealthy { reason }),
    }
}
