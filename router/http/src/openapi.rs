//! The OpenAPI document: made from the routes themselves and the types that they read and write, so that neither can be
//! without the other.

use std::collections::BTreeMap;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, License, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr, Response,
    ResponseBuilder,
};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use crate::error::ErrorBody;
use crate::openai::chat::ChatDelta;
use crate::openai::envelope::Enveloped;
use crate::openai::errors::{OpenAiErrorBody, Route};
use crate::routes::live::Sample;
use crate::surface::Surface;
use crate::wire::StreamEvent;

/// What the document says before its routes are known.
pub(crate) fn base() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Headrace")
        .description(Some("Text generation: the routes of Text Generation Inference and of OpenAI."))
        .version(env!("CARGO_PKG_VERSION"))
        .license(Some(License::new("Apache-2.0")));
    // Shapes that no route names by type: of errors, and of what only events are made of.
    let mut shapes = Vec::new();
    add::<ErrorBody>(&mut shapes);
    add::<StreamEvent>(&mut shapes);
    add::<Sample>(&mut shapes);
    add::<OpenAiErrorBody>(&mut shapes);
    add::<ChatDelta>(&mut shapes);
    shapes.push(("ChatChunk".to_owned(), Enveloped::<'_, ChatDelta>::schema()));
    let shapes = shapes.into_iter().fold(ComponentsBuilder::new(), |all, (name, shape)| all.schema(name, shape));
    let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A key of `--api-key`")).build();
    let shapes = shapes.security_scheme(API_KEY, SecurityScheme::Http(key));
    OpenApiBuilder::new().info(info).components(Some(shapes.build())).build()
}

type Shape = (String, RefOr<Schema>);

/// A type and those that it holds.
fn add<T: ToSchema>(shapes: &mut Vec<Shape>) {
    shapes.push((T::name().into_owned(), T::schema()));
    T::schemas(shapes);
}

/// The whole document, as JSON.
pub fn openapi_json() -> String {
    json(crate::router::document())
}

/// `GET` of the document.
pub(crate) fn route<S: Clone + Send + Sync + 'static>(document: OpenApi) -> MethodRouter<S> {
    let bytes = Bytes::from(json(document));
    get(move || std::future::ready(answer(bytes.clone())))
}

fn answer(bytes: Bytes) -> HttpResponse {
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

fn json(mut document: OpenApi) -> String {
    // How axum marks a part with slashes in it.
    let paths = std::mem::take(&mut document.paths.paths);
    document.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    document.paths.paths.values_mut().for_each(request_ids);
    document.to_pretty_json().unwrap_or_default()
}

/// Says of routes that they ask for an API key: always, where the server has keys, and sometimes, where nobody knows.
pub(crate) fn protect(document: &mut OpenApi, surface: &Surface) {
    let mut ways = vec![SecurityRequirement::new(API_KEY, [""; 0])];
    if surface.api_keys.is_empty() {
        ways.push(SecurityRequirement::default());
    }
    for (path, item) in &mut document.paths.paths {
        let refused = match Route::of(path) {
            Some(_) => errors::<OpenAiErrorBody>(UNAUTHORIZED),
            None => errors::<ErrorBody>(UNAUTHORIZED),
        };
        for operation in operations(item) {
            operation.security = Some(ways.clone());
            operation.responses.responses.extend(refused.clone());
        }
    }
}

fn operations(path: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut path.get, &mut path.post, &mut path.put, &mut path.delete].into_iter().flatten()
}

/// Every answer of every route has its request's id.
fn request_ids(path: &mut PathItem) {
    for response in operations(path).flat_map(|operation| operation.responses.responses.values_mut()) {
        if let RefOr::T(response) = response {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let id = HeaderBuilder::new()
                .schema(Some(text))
                .description(Some("The one that was sent, or a new one."))
                .build();
            response.headers.insert("x-request-id".to_owned(), RefOr::T(id));
        }
    }
}

/// How a body can be wrong.
pub(crate) struct BodyErrors;

impl IntoResponses for BodyErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        errors::<ErrorBody>(BODY)
    }
}

/// How a route that generates can fail, its body included.
pub(crate) struct GenerateErrors;

impl IntoResponses for GenerateErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut all = errors::<ErrorBody>(BODY);
        all.extend(errors::<ErrorBody>(GENERATION));
        all
    }
}

/// Answers of these statuses with bodies in the shape `T`, which the route's document must have among its schemas.
pub(crate) fn errors<T: ToSchema>(statuses: &[(StatusCode, &str)]) -> BTreeMap<String, RefOr<Response>> {
    statuses.iter().map(|(status, why)| (status.as_str().to_owned(), error::<T>(*status, why).into())).collect()
}

fn error<T: ToSchema>(status: StatusCode, why: &str) -> Response {
    let shape = ContentBuilder::new().schema(Some(Ref::from_schema_name(T::name()))).build();
    let response = ResponseBuilder::new().description(why).content("application/json", shape);
    if status != StatusCode::TOO_MANY_REQUESTS {
        return response.build();
    }
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
    let retry = HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds.")).build();
    response.header("retry-after", retry).build()
}

const UNAUTHORIZED: &[(StatusCode, &str)] = &[(StatusCode::UNAUTHORIZED, "No API key of this server came")];

const API_KEY: &str = "api_key";

pub(crate) const BODY: &[(StatusCode, &str)] = &[
    (StatusCode::BAD_REQUEST, "The body is not JSON in UTF-8, or could not be read"),
    (StatusCode::REQUEST_TIMEOUT, "The body came too slowly"),
    (StatusCode::PAYLOAD_TOO_LARGE, "The body is larger than `--payload-limit`"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The content type is not JSON"),
    (StatusCode::UNPROCESSABLE_ENTITY, "A field has a wrong type, or a value that cannot be served"),
    (StatusCode::TOO_MANY_REQUESTS, "Too many requests are running or waiting"),
    (StatusCode::INTERNAL_SERVER_ERROR, "A bug in the server"),
];

pub(crate) const GENERATION: &[(StatusCode, &str)] = &[
    (StatusCode::FAILED_DEPENDENCY, "The shard failed while it generated"),
    (StatusCode::SERVICE_UNAVAILABLE, "The server is shutting down"),
    (StatusCode::GATEWAY_TIMEOUT, "The answer was not finished within `--request-timeout`"),
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn document() -> Value {
        serde_json::from_str(&openapi_json()).unwrap()
    }

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(|to| to.as_str()).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for to in found {
            let pointer = to.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{to}");
        }
    }
}
