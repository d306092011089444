//! `GET /v1/models` and `/v1/models/{id}`: the model by its names.
//!
//! Clients send what they like as a model's name (`tgi`, `dummy`, the server's own URL), and a server of one model has
//! nothing to choose: any name is taken. A server that was given names takes those, its model's id, and `tgi`.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::errors::ModelErrors;
use crate::error::ApiError;
use crate::in_path::InPath;
use crate::json;
use crate::state::{ServerInfo, ServerState, Shared};

/// Lists the model by its names.
#[utoipa::path(
    get, path = "/v1/models", tag = "OpenAI", responses((status = OK, description = "The list", body = Models))
)]
pub(crate) async fn models(State(state): State<ServerState>) -> Response {
    let data = state.info.model_names().iter().map(|id| Model::new(&state, id)).collect();
    answer(&Models { object: "list", data })
}

/// Tells whether there is a model of this name.
#[utoipa::path(
    get, path = "/v1/models/{*id}", tag = "OpenAI",
    params((
        "id" = String, Path, description = "The name, slashes and all", min_length = 1,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)*$", example = "tgi"
    )),
    responses((status = OK, description = "The model", body = Model), ModelErrors)
)]
pub(crate) async fn model(State(state): State<ServerState>, InPath(id): InPath<String>) -> Result<Response, ApiError> {
    match is_known(&state.info, &id) || id == TGI {
        true => Ok(answer(&Model::new(&state, &id))),
        false => Err(unknown(&id)),
    }
}

/// What an answer calls the model that a request names.
pub(crate) fn named(info: &ServerInfo, asked: Option<&str>) -> Result<String, ApiError> {
    let own = || info.model_names().first().unwrap_or(&info.model_id).clone();
    match asked {
        None | Some("" | TGI) => Ok(own()),
        Some(name) if info.served_model_names.is_empty() || is_known(info, name) => Ok(name.to_owned()),
        Some(name) => Err(unknown(name)),
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Models<'a> {
    /// `list`.
    object: &'static str,
    data: Vec<Model<'a>>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Model<'a> {
    id: &'a str,
    /// `model`.
    object: &'static str,
    /// When the server was started, in seconds since 1970.
    created: u64,
    owned_by: &'a str,
}

impl<'a> Model<'a> {
    fn new(state: &'a Shared, id: &'a str) -> Self {
        Self { id, object: "model", created: state.started, owned_by: &state.info.model_id }
    }
}

fn is_known(info: &ServerInfo, name: &str) -> bool {
    name == info.model_id || info.model_names().iter().any(|known| known == name)
}

fn unknown(name: &str) -> ApiError {
    ApiError::UnknownModel { given: name.chars().take(SHOWN_CHARS).collect() }
}

fn answer(value: &impl Serialize) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json::bytes(value)).into_response()
}

/// The name that TGI's documentation tells clients to send.
const TGI: &str = "tgi";

const SHOWN_CHARS: usize = 100;
