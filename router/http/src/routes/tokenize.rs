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
use crate::token_list::TokenList;
use crate::tokenization::LONG_BYTES;
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
    if inputs.len() > LONG_BYTES {
        let place = state.tokenization.place_of_answer().await?;
        let list = state.tokenization.encode(inputs, TokenList::new).await?;
        return Ok(list.respond(state, place));
    }
    let answer = state.tokenization.encode(inputs, |text, encoding| json::bytes(&simple_tokens(&text, &encoding)));
    Ok(([(header::CONTENT_TYPE, "application/json")], answer.await?).into_response())
}
