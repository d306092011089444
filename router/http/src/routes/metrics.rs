//! `GET /metrics`: Prometheus' text format.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use headrace_telemetry::PROMETHEUS_TEXT;

use crate::state::ServerState;

/// Prometheus' text format.
#[utoipa::path(
    get, path = "/metrics", tag = "Server",
    responses((status = OK, description = "Metrics", body = String, content_type = "text/plain"))
)]
pub(crate) async fn metrics(State(state): State<ServerState>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], state.metrics.render())
}
