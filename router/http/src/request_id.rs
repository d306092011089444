//! `x-request-id`: taken from the request or made here, on every answer, in every log line.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use headrace_telemetry::TraceContext;

use crate::error::ApiError;
use crate::stall::Stalled;
use crate::traces;

/// Puts the id into the request's extensions and on the answer, and sees to it that a refusal has its line in the log,
/// whoever refuses.
pub(crate) async fn middleware(mut request: Request, next: Next) -> Response {
    let given = request.headers().get(&HEADER).filter(|value| is_plain(value)).cloned();
    let id = given.unwrap_or_else(draw);
    let noted = Noted::default();
    request.extensions_mut().insert(RequestId(id.clone(), noted.clone()));
    let (route, uri) = (request.extensions().get::<MatchedPath>().cloned(), request.uri().clone());
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions().get::<ApiError>()
        && error.status().is_client_error()
        && !noted.get()
    {
        let route = route.as_ref().map_or_else(|| ApiError::shown_path(&uri), |route| route.as_str().to_owned());
        // As of requests that got further: the sentence may repeat what the client sent.
        tracing::info!(
            route = &*route,
            request_id = id.to_str().unwrap_or_default(),
            error_type = error.error_type(),
            "Refused"
        );
    }
    response.headers_mut().insert(HEADER, id);
    response
}

#[derive(Clone)]
struct RequestId(HeaderValue, Noted);

/// Whether the log has a line on how the request ended, and the metrics have counted it.
#[derive(Clone, Default)]
struct Noted(Arc<AtomicBool>);

impl Noted {
    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Who asks, and for what: what log lines begin with.
#[derive(Clone)]
pub(crate) struct Caller {
    route: Arc<str>,
    id: HeaderValue,
    noted: Noted,
    stalled: Stalled,
    trace: Option<TraceContext>,
}

impl Caller {
    pub fn route(&self) -> &str {
        &self.route
    }

    pub fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    /// Which trace the request is part of, where its client says.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.trace.as_ref()
    }

    /// The log and the metrics know how the request ended.
    pub fn is_noted(&self) -> bool {
        self.noted.get()
    }

    /// They do now.
    pub fn note(&self) {
        self.noted.0.store(true, Ordering::Relaxed);
    }

    /// Its connection ended because it took nothing of what was sent.
    pub fn stalled(&self) -> bool {
        self.stalled.get()
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let route = parts.extensions.get::<MatchedPath>().map_or_else(|| parts.uri.path(), MatchedPath::as_str);
        let known = parts.extensions.get::<RequestId>().cloned();
        let RequestId(id, noted) = known.unwrap_or_else(|| RequestId(draw(), Noted::default()));
        let stalled = parts.extensions.get::<Stalled>().cloned().unwrap_or_default();
        Ok(Self { route: route.into(), id, noted, stalled, trace: traces::context(&parts.headers) })
    }
}

/// Short and printable: it goes into logs and headers.
fn is_plain(value: &HeaderValue) -> bool {
    (1..=MAX_BYTES).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn draw() -> HeaderValue {
    let id = format!("{:032x}", rand::random::<u128>());
    HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_BYTES: usize = 128;
