//! The table of routes, and what stands around all of them.

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::from_fn;
use axum::{Router, extract::DefaultBodyLimit};
use tower_http::cors::{AllowOrigin, Any, CorsLayer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::openapi;
use crate::request_id;
use crate::routes::{chat_tokenize, compat, generate, health, info, metrics, stream, tokenize};
use crate::state::{ServerState, Shared};

/// The routes with all that stands around them.
pub fn router(state: ServerState) -> Router {
    let cors = cors(&state);
    let (routes, document) = documented().split_for_parts();
    routes
        .route("/api-doc/openapi.json", openapi::route(document))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(request_id::middleware))
        .layer(cors)
        // Bodies have a limit of their own (`payload`), with an answer in our shape.
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

/// All routes, each with its documentation. A new family of routes is a file in `routes/` and a line here.
pub(crate) fn documented() -> OpenApiRouter<ServerState> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(compat::compat, health::root))
        .routes(routes!(generate::generate))
        .routes(routes!(stream::generate_stream))
        .routes(routes!(tokenize::tokenize))
        .routes(routes!(chat_tokenize::chat_tokenize))
        .routes(routes!(health::health))
        .routes(routes!(health::ping))
        .routes(routes!(info::info))
        .routes(routes!(metrics::metrics))
}

/// Browsers may call from anywhere, or from the origins that were named, with any header, and read every header.
fn cors(state: &Shared) -> CorsLayer {
    let origins = match state.cors_origins.as_slice() {
        [] => AllowOrigin::any(),
        named => AllowOrigin::list(named.to_vec()),
    };
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(Any)
        .expose_headers(Any)
}

async fn no_route(request: Request) -> ApiError {
    ApiError::NoRoute { method: request.method().clone(), path: shown_path(&request) }
}

async fn wrong_method(request: Request) -> ApiError {
    ApiError::Method { method: request.method().clone(), path: shown_path(&request) }
}

fn shown_path(request: &Request) -> String {
    request.uri().path().chars().take(SHOWN_CHARS).collect()
}

const SHOWN_CHARS: usize = 100;
