//! `GET /info`: the model, the limits, the version. TGI 3's fields, those of TGI 2 that clients still read, and
//! `scheduling_policy`.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::json;
use crate::state::{ServerState, Shared};

/// The model, the limits, the version.
#[utoipa::path(get, path = "/info", tag = "Server", responses((status = OK, description = "Facts", body = Info)))]
pub(crate) async fn info(State(state): State<ServerState>) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, json::bytes(&Info::of(&state))).into_response()
}

#[derive(Serialize, ToSchema)]
#[schema(as = Info)]
struct Info<'a> {
    model_id: &'a str,
    #[schema(required = true)]
    model_sha: Option<&'a str>,
    model_dtype: &'a str,
    model_device_type: &'a str,
    #[schema(required = true)]
    model_pipeline_tag: Option<&'a str>,
    max_concurrent_requests: u32,
    max_best_of: u32,
    max_stop_sequences: u32,
    max_input_tokens: u32,
    max_total_tokens: u32,
    scheduling_policy: &'static str,
    waiting_served_ratio: f32,
    max_batch_total_tokens: u32,
    max_waiting_tokens: u32,
    #[schema(required = true)]
    max_batch_size: Option<u32>,
    validation_workers: u32,
    max_client_batch_size: u32,
    router: &'static str,
    version: &'a str,
    #[schema(required = true)]
    sha: Option<&'a str>,
    #[schema(required = true)]
    docker_label: Option<&'a str>,
}

impl<'a> Info<'a> {
    fn of(Shared { limits, info, .. }: &'a Shared) -> Self {
        Self {
            model_id: &info.model_id,
            model_sha: info.model_sha.as_deref(),
            model_dtype: &info.model_dtype,
            model_device_type: &info.model_device_type,
            model_pipeline_tag: info.model_pipeline_tag.as_deref(),
            max_concurrent_requests: limits.max_concurrent_requests,
            max_best_of: limits.max_best_of,
            max_stop_sequences: limits.max_stop_sequences,
            max_input_tokens: limits.max_input_tokens,
            max_total_tokens: limits.max_total_tokens,
            scheduling_policy: info.scheduling_policy,
            waiting_served_ratio: info.waiting_served_ratio,
            max_batch_total_tokens: info.max_batch_total_tokens,
            max_waiting_tokens: info.max_waiting_tokens,
            max_batch_size: info.max_batch_size,
            validation_workers: limits.validation_workers,
            max_client_batch_size: limits.max_client_batch_size,
            router: "headrace",
            version: &info.version,
            sha: info.sha.as_deref(),
            docker_label: info.docker_label.as_deref(),
        }
    }
}
