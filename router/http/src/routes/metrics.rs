//! `GET /metrics`: Prometheus' text format.

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use headrace_telemetry::{MetricsHandle, PROMETHEUS_TEXT};

use crate::state::ServerState;

/// Prometheus' text format.
#[utoipa::path(
    get, path = "/metrics", tag = "Server",
    responses((status = OK, description = "Metrics", body = String, content_type = "text/plain"))
)]
pub(crate) async fn metrics(State(state): State<ServerState>) -> impl IntoResponse {
    show(&state.metrics)
}

/// `GET /metrics` and nothing else: for a port that only scrapers reach.
pub fn metrics_router(metrics: MetricsHandle) -> Router {
    let alone = async |State(metrics): State<MetricsHandle>| show(&metrics);
    Router::new().route("/metrics", get(alone)).with_state(metrics)
}

fn show(metrics: &MetricsHandle) -> impl IntoResponse + use<> {
    ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], metrics.render())
}
