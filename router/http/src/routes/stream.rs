//! `POST /generate_stream`: an event per token, the last one with the whole text.

use axum::extract::State;
use axum::response::Response;

use crate::call::Call;
use crate::events;
use crate::parameters::GenerateBody;
use crate::payload::Payload;
use crate::request_id::Caller;
use crate::state::ServerState;
use crate::terms::HeaderTerms;

pub(crate) async fn generate_stream(
    State(state): State<ServerState>,
    caller: Caller,
    terms: HeaderTerms,
    Payload { body, received }: Payload<GenerateBody>,
) -> Response {
    let call = Call::begin(state, caller, terms, received);
    events::respond(call, body.inputs, body.parameters.0).await
}
