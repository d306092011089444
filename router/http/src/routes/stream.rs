//! `POST /generate_stream`: an event per token, the last one with the whole text.

use axum::extract::State;
use axum::response::Response;

use crate::call::Call;
use crate::events;
use crate::openapi::GenerateErrors;
use crate::parameters::GenerateBody;
use crate::payload::Payload;
use crate::request_id::Caller;
use crate::sse::SentEvent;
use crate::state::ServerState;
use crate::terms::HeaderTerms;

/// Generates, and sends each token as it comes.
#[utoipa::path(
    post, path = "/generate_stream", tag = "Text generation", request_body = GenerateBody,
    responses(
        (status = OK, description = "Server-sent events: the data of each is a `StreamResponse`, or an `ErrorResponse` \
            that ends the stream. Wrong fields and overload are such events too", body = SentEvent,
            content_type = "text/event-stream"),
        GenerateErrors,
    )
)]
pub(crate) async fn generate_stream(
    State(state): State<ServerState>,
    caller: Caller,
    terms: HeaderTerms,
    Payload { body, received }: Payload<GenerateBody>,
) -> Response {
    let call = Call::begin(state, caller, terms, received);
    events::respond(call, body.inputs, body.parameters.0).await
}
