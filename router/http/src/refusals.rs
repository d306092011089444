//! Requests that are refused before they are a [`Call`](crate::call::Call): by the question of keys, a header, a body. They
//! count too, as requests that came and failed, whoever refuses them.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::error::ApiError;
use crate::request_id::Caller;
use crate::state::ServerState;

/// Stands around each route that generates. What a call has counted already is not counted again.
pub(crate) async fn middleware(
    State(state): State<ServerState>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    if let Some(error) = response.extensions().get::<ApiError>().filter(|_| !caller.is_noted()) {
        state.requests.refused_early(error);
    }
    response
}
