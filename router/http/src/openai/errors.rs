//! OpenAI's error object, around TGI's sentence and its `error_type`, for every answer of a `/v1` route.
//!
//! Handlers, extractors and the table of routes answer errors as everywhere; the body is exchanged on the way out, so
//! that none can be forgotten.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde::Serialize;
use utoipa::openapi::{RefOr, Response as Documented};
use utoipa::{IntoResponses, ToSchema};

use crate::error::ApiError;
use crate::{json, openapi};

/// How a route that generates can fail, as the document tells it.
pub(crate) struct OpenAiErrors;

impl IntoResponses for OpenAiErrors {
    fn responses() -> BTreeMap<String, RefOr<Documented>> {
        let mut all = openapi::errors::<OpenAiErrorBody>(openapi::BODY);
        all.extend(openapi::errors::<OpenAiErrorBody>(openapi::GENERATION));
        all.extend(openapi::errors::<OpenAiErrorBody>(UNKNOWN_MODEL));
        all
    }
}

/// How `/v1/models/{id}` can fail.
pub(crate) struct ModelErrors;

impl IntoResponses for ModelErrors {
    fn responses() -> BTreeMap<String, RefOr<Documented>> {
        openapi::errors::<OpenAiErrorBody>(UNKNOWN_MODEL)
    }
}

const UNKNOWN_MODEL: &[(StatusCode, &str)] = &[(StatusCode::NOT_FOUND, "There is no model of this name")];

/// Gives the errors of `/v1` routes their shape.
pub(crate) async fn middleware(request: Request, next: Next) -> Response {
    let route = Route::of(request.uri().path());
    let mut response = next.run(request).await;
    let body = route.zip(response.extensions().get::<ApiError>()).map(|(route, error)| json::bytes(&route.body(error)));
    if let Some(body) = body {
        *response.body_mut() = Body::from(body);
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    response
}

/// Which of the routes with this shape: the same native field has other names there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Completions,
    Chat,
    Other,
}

/// The body of an error.
#[derive(Serialize, ToSchema)]
#[schema(as = OpenAiErrorResponse)]
pub(crate) struct OpenAiErrorBody {
    error: ErrorObject,
    /// TGI's word for programs.
    #[schema(example = "validation")]
    error_type: &'static str,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorObject {
    /// A sentence that says what is wrong, and what to do.
    message: String,
    #[schema(example = "invalid_request_error")]
    r#type: &'static str,
    /// The field that is wrong.
    param: Option<String>,
    /// A word for programs, where OpenAI has one.
    code: Option<&'static str>,
    /// In events only, which have no status of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    http_status_code: Option<u16>,
}

impl Route {
    pub fn of(path: &str) -> Option<Self> {
        match path.strip_prefix("/v1/")? {
            "completions" => Some(Self::Completions),
            "chat/completions" => Some(Self::Chat),
            _ => Some(Self::Other),
        }
    }

    pub fn body(self, error: &ApiError) -> OpenAiErrorBody {
        let object = ErrorObject {
            message: error.to_string(),
            r#type: type_of(error.status()),
            param: self.param(error),
            code: error.code(),
            http_status_code: None,
        };
        OpenAiErrorBody { error: object, error_type: error.error_type() }
    }

    /// The data of an error event.
    pub fn event(self, error: &ApiError) -> OpenAiErrorBody {
        let mut body = self.body(error);
        body.error.http_status_code = Some(error.status().as_u16());
        body
    }

    fn param(self, error: &ApiError) -> Option<String> {
        error.field().map(|field| self.name(&field).unwrap_or(&field).to_owned())
    }

    /// What a native field is called here, where that differs.
    fn name(self, field: &str) -> Option<&'static str> {
        match (field, self) {
            ("inputs", Self::Completions) => Some("prompt"),
            ("inputs", Self::Chat) => Some("messages"),
            ("max_new_tokens", _) => Some("max_tokens"),
            ("truncate", _) => Some("truncate_prompt_tokens"),
            _ => None,
        }
    }
}

fn type_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::FAILED_DEPENDENCY => "server_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}
