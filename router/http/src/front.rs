//! The port answers before the model is loaded: that the process lives, and what it is doing. Then the real routes take
//! over, on connections that are open already too.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::error::ApiError;
use crate::openai::errors;
use crate::{payload, request_id};

/// Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Front {
    routes: Arc<OnceLock<Router>>,
    doing: Arc<watch::Sender<Cow<'static, str>>>,
}

impl Front {
    /// `doing` is what the server does until it can answer, as in "loading weights".
    pub fn new(doing: &'static str) -> Self {
        Self { routes: Arc::default(), doing: Arc::new(watch::Sender::new(doing.into())) }
    }

    /// Goes on to the next thing that it does.
    pub fn doing(&self, doing: impl Into<Cow<'static, str>>) {
        self.doing.send_replace(doing.into());
    }

    /// From now on these routes answer. Only the first ones count.
    pub fn open(&self, routes: Router) {
        let _ = self.routes.set(routes);
    }

    /// What to serve from the first moment.
    pub fn router(&self) -> Router {
        let loading = Router::new()
            .route("/livez", get(StatusCode::OK))
            .route("/readyz", get(unhealthy))
            .route("/health", get(unhealthy))
            .route("/ping", get(unhealthy))
            .route("/", get(unhealthy).fallback(loading))
            .fallback(loading)
            .layer(from_fn(errors::middleware))
            .layer(from_fn(request_id::middleware))
            .with_state(self.clone());
        let front = self.clone();
        Router::new().fallback(move |request| pass(front.clone(), loading.clone(), request))
    }

    fn reason(&self) -> Cow<'static, str> {
        self.doing.borrow().clone()
    }
}

async fn pass(front: Front, loading: Router, request: Request) -> Result<Response, Infallible> {
    front.routes.get().cloned().unwrap_or(loading).oneshot(request).await
}

async fn unhealthy(State(front): State<Front>) -> ApiError {
    ApiError::Unhealthy { reason: format!("the model is not loaded yet, it is {}", front.reason()) }
}

async fn loading(State(front): State<Front>, request: Request) -> Response {
    payload::discard_unread(request).await;
    ApiError::Loading { doing: front.reason() }.into_response()
}
