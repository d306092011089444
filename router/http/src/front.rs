//! The port answers before the model is loaded: that the process lives, and what it is doing. Then the real routes take
//! over, on connections that are open already too.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::watch;
use tower::ServiceExt;

use crate::error::ApiError;
use crate::metrics::RequestMetrics;
use crate::openai::errors;
use crate::router::generating_paths;
use crate::{payload, request_id};

/// Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Front {
    routes: Arc<OnceLock<Router>>,
    doing: Arc<watch::Sender<Cow<'static, str>>>,
    /// Requests that wanted to generate and are not counted yet: as long as the model loads, there are no metrics.
    refused: Arc<AtomicU64>,
}

impl Front {
    /// `doing` is what the server does until it can answer, as in "loading weights".
    pub fn new(doing: &'static str) -> Self {
        Self { routes: Arc::default(), doing: Arc::new(watch::Sender::new(doing.into())), refused: Arc::default() }
    }

    /// Goes on to the next thing that it does.
    pub fn doing(&self, doing: impl Into<Cow<'static, str>>) {
        self.doing.send_replace(doing.into());
    }

    /// From now on these routes answer. Only the first ones count.
    pub fn open(&self, routes: Router) {
        let _ = self.routes.set(routes);
        self.count();
    }

    /// What to serve from the first moment.
    pub fn router(&self) -> Router {
        let mut loading = Router::new()
            .route("/livez", get(StatusCode::OK))
            .route("/readyz", get(unhealthy))
            .route("/health", get(unhealthy))
            .route("/ping", get(unhealthy))
            .route("/", get(unhealthy));
        for path in generating_paths() {
            loading = loading.route(&path, post(refuse));
        }
        let loading = loading
            .fallback(say_loading)
            .method_not_allowed_fallback(say_loading)
            .layer(from_fn(errors::middleware))
            .layer(from_fn(request_id::middleware))
            .with_state(self.clone());
        let front = self.clone();
        Router::new().fallback(move |request| pass(front.clone(), loading.clone(), request))
    }

    /// Nothing while there are no metrics. A request that is refused on the way to that moment counts itself, or is counted
    /// by [`Self::open`]: it adds before it looks, and `open` sets before it takes.
    fn count(&self) {
        if self.routes.get().is_none() {
            return;
        }
        let (metrics, error) = (RequestMetrics::new(), self.error());
        (0..self.refused.swap(0, Ordering::SeqCst)).for_each(|_| metrics.refused_early(&error));
    }

    fn error(&self) -> ApiError {
        ApiError::Loading { doing: self.reason() }
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

/// A request that wants to generate.
async fn refuse(State(front): State<Front>, request: Request) -> Response {
    front.refused.fetch_add(1, Ordering::SeqCst);
    front.count();
    say_loading(State(front), request).await
}

async fn say_loading(State(front): State<Front>, request: Request) -> Response {
    payload::discard_unread(request).await;
    front.error().into_response()
}
