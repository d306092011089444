//! `GET /metrics`: Prometheus' text format.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use crate::state::ServerState;

pub(crate) async fn metrics(State(state): State<ServerState>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics.render())
}
