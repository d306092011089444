//! `POST /generate`: the whole answer as one object.

use axum::extract::State;
use axum::response::Response;

use crate::answer::{self, Shape};
use crate::call::Call;
use crate::openapi::GenerateErrors;
use crate::parameters::GenerateBody;
use crate::payload::Payload;
use crate::request_id::Caller;
use crate::state::ServerState;
use crate::terms::HeaderTerms;
use crate::wire::Generated;

/// Generates, and answers when all is there.
#[utoipa::path(
    post, path = "/generate", tag = "Text generation", request_body = GenerateBody,
    responses((status = OK, description = "The answer", body = Generated), GenerateErrors)
)]
pub(crate) async fn generate(
    State(state): State<ServerState>,
    caller: Caller,
    terms: HeaderTerms,
    Payload { body, received }: Payload<GenerateBody>,
) -> Response {
    let call = Call::begin(state, caller, terms, received);
    answer::respond(call, body.inputs, body.parameters.0, Shape::Object).await
}
