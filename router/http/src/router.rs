//! The table of routes, and what stands around all of them.

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use axum::{Router, extract::DefaultBodyLimit};
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

use crate::error::ApiError;
use crate::request_id;
use crate::routes::{chat_tokenize, compat, generate, health, info, metrics, stream, tokenize};
use crate::state::{ServerState, Shared};

/// All routes. A new family of routes is a file in `routes/`, a line here and one in [`ROUTES`].
pub fn router(state: ServerState) -> Router {
    let cors = cors(&state);
    Router::new()
        .route("/", post(compat::compat).get(health::health))
        .route("/generate", post(generate::generate))
        .route("/generate_stream", post(stream::generate_stream))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/chat_tokenize", post(chat_tokenize::chat_tokenize))
        .route("/health", get(health::health))
        .route("/ping", get(health::health))
        .route("/info", get(info::info))
        .route("/metrics", get(metrics::metrics))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(request_id::middleware))
        .layer(cors)
        // Bodies have a limit of their own (`payload`), with an answer in our shape.
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

/// For the answer to an unknown route.
pub(crate) const ROUTES: &str = "POST /, POST /generate, POST /generate_stream, POST /tokenize, POST /chat_tokenize, GET /, \
                                 GET /health, GET /ping, GET /info, GET /metrics";

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
