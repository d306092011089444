//! `GET /docs`: Swagger UI on the OpenAPI document. Its files are part of this binary, and it loads nothing from
//! elsewhere.

use std::sync::{Arc, LazyLock};

use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use utoipa_swagger_ui::{Config, SwaggerFile};

use crate::error::ApiError;
use crate::in_path::InPath;

/// Relative, as all links here: a proxy may serve us under a prefix.
pub(crate) async fn to_folder() -> impl IntoResponse {
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "docs/")])
}

pub(crate) async fn index(method: Method, uri: Uri) -> Result<Response, ApiError> {
    show(INDEX, &method, &uri)
}

pub(crate) async fn file(InPath(path): InPath<String>, method: Method, uri: Uri) -> Result<Response, ApiError> {
    show(&path, &method, &uri)
}

fn show(path: &str, method: &Method, uri: &Uri) -> Result<Response, ApiError> {
    match utoipa_swagger_ui::serve(path, CONFIG.clone()) {
        Ok(Some(SwaggerFile { bytes, content_type, .. })) => {
            Ok(([(header::CONTENT_TYPE, content_type)], bytes.into_owned()).into_response())
        }
        Ok(None) => Err(ApiError::no_route(method, uri)),
        Err(_) => Err(ApiError::Internal("a file of Swagger UI cannot be shown")),
    }
}

static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
    // Without a word about it, Swagger UI would ask a validator elsewhere.
    Arc::new(Config::new(["../api-doc/openapi.json"]).validator_url("none"))
});

const INDEX: &str = "index.html";
