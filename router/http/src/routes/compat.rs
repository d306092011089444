//! `POST /`: `/generate` as an array of one, or `/generate_stream` where `stream` is true. The prompt is part of the
//! text unless the request says otherwise.

use axum::extract::State;
use axum::response::Response;

use crate::answer::{self as whole, Shape};
use crate::call::Call;
use crate::events;
use crate::openapi::GenerateErrors;
use crate::parameters::CompatBody;
use crate::payload::Payload;
use crate::request_id::Caller;
use crate::sse::SentEvent;
use crate::state::ServerState;
use crate::terms::HeaderTerms;
use crate::wire::Generated;

/// Generates: `/generate` in an array of one, or with `stream` as `/generate_stream`.
#[utoipa::path(
    post, path = "/", tag = "Text generation", request_body = CompatBody,
    responses(
        (status = OK, description = "The answer, which begins with the prompt unless `return_full_text` is false; or \
            server-sent events: the data of each is a `StreamResponse`, or an `ErrorResponse` that ends the stream",
            content((Vec<Generated> = "application/json"), (SentEvent = "text/event-stream"))),
        GenerateErrors,
    )
)]
pub(crate) async fn compat(
    State(state): State<ServerState>,
    caller: Caller,
    terms: HeaderTerms,
    Payload { body, received }: Payload<CompatBody>,
) -> Response {
    answer(Call::begin(state, caller, terms, received), body).await
}

/// Answers such a body, whatever its route.
pub(crate) async fn answer(call: Call, body: CompatBody) -> Response {
    let mut parameters = body.parameters.0;
    parameters.return_full_text.get_or_insert(call.state().info.compat_returns_full_text());
    match body.stream {
        true => events::respond(call, body.inputs, parameters).await,
        false => whole::respond(call, body.inputs, parameters, Shape::Array).await,
    }
}
