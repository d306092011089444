//! `POST /tokenize`: the tokens of a text as generation would see them. `parameters` are read and ignored.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use crate::json;
use crate::openapi::BodyErrors;
use crate::parameters::GenerateBody;
use crate::payload::Payload;
use crate::state::ServerState;
use crate::wire::{SimpleToken, simple_tokens};

/// The tokens of a text. `parameters` are read and ignored.
#[utoipa::path(
    post, path = "/tokenize", tag = "Text generation", request_body = GenerateBody,
    responses((status = OK, description = "Its tokens", body = Vec<SimpleToken>), BodyErrors)
)]
pub(crate) async fn tokenize(
    State(state): State<ServerState>,
    Payload { body: GenerateBody { inputs, .. }, .. }: Payload<GenerateBody>,
) -> Result<Response, ApiError> {
    // A long text has a long answer: that, too, is written beside the reactor.
    let answer = state.tokenization.encode(inputs, |text, encoding| json::bytes(&simple_tokens(&text, &encoding)));
    Ok(([(header::CONTENT_TYPE, "application/json")], answer.await?).into_response())
}
