//! The table of routes, and what stands around all of them.

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, extract::DefaultBodyLimit};
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::openai::{chat, completion, errors, models};
use crate::preflight::CrossOrigin;
use crate::routes::{
    chat_tokenize, compat, docs, generate, health, info, invocations, kserve, live, metrics, stream, tokenize, vertex,
};
use crate::state::{ServerState, Shared};
use crate::surface::Surface;
use crate::{auth, openapi, payload, refusals, request_id, vertex_ai};

/// The routes with all that stands around them.
pub fn router(state: ServerState) -> Router {
    let cors = CrossOrigin(cors(&state));
    let surface = &state.surface;
    let (mut protected, mut generating) = (protected(surface), generating(surface));
    if !surface.api_keys.is_empty() {
        let keys = from_fn_with_state(state.clone(), auth::middleware);
        (protected, generating) = (protected.route_layer(keys.clone()), generating.route_layer(keys));
    }
    // Around the question of keys, too.
    let generating = generating.route_layer(from_fn_with_state(state.clone(), refusals::middleware));
    let (routes, document) = documented(open(surface).merge(protected).merge(generating)).split_for_parts();
    let vertex_ai = surface.vertex_ai.clone();
    let routes = routes
        .route("/api-doc/openapi.json", openapi::route(document))
        .route("/docs", get(docs::to_folder))
        .route("/docs/", get(docs::index))
        .route("/docs/{*file}", get(docs::file))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(errors::middleware))
        .layer(from_fn(request_id::middleware))
        .layer(cors)
        // Bodies have a limit of their own (`payload`), with an answer in our shape.
        .layer(DefaultBodyLimit::disable())
        .with_state(state);
    vertex_ai::around(routes, &vertex_ai)
}

/// The OpenAPI document of all routes that there may be.
pub(crate) fn document() -> OpenApi {
    let surface = Surface { kserve: true, ..Surface::default() };
    documented(open(&surface).merge(protected(&surface)).merge(generating(&surface))).into_openapi()
}

/// The paths of all routes that generate.
pub(crate) fn generating_paths() -> Vec<String> {
    let surface = Surface { kserve: true, ..Surface::default() };
    generating(&surface).into_openapi().paths.paths.into_keys().collect()
}

fn documented(routes: OpenApiRouter<ServerState>) -> OpenApiRouter<ServerState> {
    OpenApiRouter::with_openapi(openapi::base()).merge(routes)
}

/// Routes that anybody may ask. A new family of routes is a file in `routes/` and a line here, in [`protected`] or in
/// [`generating`].
fn open(surface: &Surface) -> OpenApiRouter<ServerState> {
    let routes = OpenApiRouter::new()
        .routes(routes!(health::root))
        .routes(routes!(health::health))
        .routes(routes!(health::ping))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(info::info))
        .routes(routes!(models::models))
        .routes(routes!(models::model))
        .routes(routes!(metrics::metrics));
    if surface.kserve { routes.merge(kserve::open()) } else { routes }
}

/// Routes that ask for an API key where the server has any, and generate nothing.
fn protected(surface: &Surface) -> OpenApiRouter<ServerState> {
    let mut routes = OpenApiRouter::new()
        .routes(routes!(tokenize::tokenize))
        .routes(routes!(chat_tokenize::chat_tokenize))
        .routes(routes!(live::live));
    openapi::protect(routes.get_openapi_mut(), surface);
    routes
}

/// Routes that ask for an API key where the server has any, and whose requests the metrics count: a POST each.
fn generating(surface: &Surface) -> OpenApiRouter<ServerState> {
    let mut routes = OpenApiRouter::new()
        .routes(routes!(compat::compat))
        .routes(routes!(generate::generate))
        .routes(routes!(stream::generate_stream))
        .routes(routes!(completion::completions))
        .routes(routes!(chat::chat_completions))
        .routes(routes!(invocations::invocations))
        .routes(routes!(vertex::vertex));
    if surface.kserve {
        routes = routes.merge(kserve::generating());
    }
    openapi::protect(routes.get_openapi_mut(), surface);
    routes
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
        // As asked: `*` would not include `authorization`.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(Any)
}

async fn no_route(request: Request) -> ApiError {
    let error = ApiError::no_route(request.method(), request.uri());
    payload::discard_unread(request).await;
    error
}

/// axum adds the `allow` header.
async fn wrong_method(request: Request) -> Response {
    if *request.method() == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let error = ApiError::wrong_method(request.method(), request.uri());
    payload::discard_unread(request).await;
    error.into_response()
}
