//! `POST /chat_tokenize`: the prompt of a chat, as its text and its tokens. What only generation needs is read past.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use headrace_text::chat::ChatPrompt;
use serde::Serialize;
use utoipa::ToSchema;

use crate::chat::{self, ChatInput};
use crate::error::ApiError;
use crate::json;
use crate::openapi::BodyErrors;
use crate::payload::Payload;
use crate::state::ServerState;
use crate::token_list::TokenList;
use crate::tokenization::LONG_BYTES;
use crate::wire::{SimpleToken, simple_tokens};

/// The prompt of a chat, as its text and its tokens.
#[utoipa::path(
    post, path = "/chat_tokenize", tag = "Text generation", request_body = ChatInput,
    responses((status = OK, description = "Text and tokens", body = ChatTokens), BodyErrors)
)]
pub(crate) async fn chat_tokenize(
    State(state): State<ServerState>,
    Payload { body, .. }: Payload<ChatInput>,
) -> Result<Response, ApiError> {
    if body.bytes() > LONG_BYTES {
        let place = state.tokenization.place_of_answer().await?;
        let ChatPrompt { text, encoding } = chat::prompt(&state, body, |_| Ok(())).await?;
        return Ok(TokenList::with_text(text, encoding).respond(state, place));
    }
    let prompt = chat::prompt(&state, body, |_| Ok(())).await?;
    // A template may make much of little: that, too, is written beside the reactor.
    let answer = state.tokenization.run(prompt.text.len(), move || {
        let tokens = simple_tokens(&prompt.text, &prompt.encoding);
        json::bytes(&ChatTokens { tokenize_response: tokens, templated_text: &prompt.text })
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], answer.await?).into_response())
}

#[derive(Serialize, ToSchema)]
#[schema(as = ChatTokenizeResponse)]
struct ChatTokens<'a> {
    tokenize_response: Vec<SimpleToken<'a>>,
    templated_text: &'a str,
}
