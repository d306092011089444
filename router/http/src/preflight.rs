//! Browsers ask before they send: their question is answered for every route. Any other `OPTIONS` is a request for a
//! route, and is told which methods that has.

use std::task::{Context, Poll};

use axum::extract::Request;
use axum::http::{Method, header};
use futures::future::Either;
use tower::{Layer, Service};
use tower_http::cors::{Cors, CorsLayer};

/// `CorsLayer` would take every `OPTIONS` for a question of a browser.
#[derive(Clone)]
pub(crate) struct CrossOrigin(pub CorsLayer);

impl<S: Clone> Layer<S> for CrossOrigin {
    type Service = CrossOriginService<S>;

    fn layer(&self, inner: S) -> CrossOriginService<S> {
        CrossOriginService { cors: self.0.layer(inner.clone()), plain: inner }
    }
}

#[derive(Clone)]
pub(crate) struct CrossOriginService<S> {
    cors: Cors<S>,
    plain: S,
}

impl<S, B> Service<Request> for CrossOriginService<S>
where
    S: Service<Request, Response = axum::http::Response<B>>,
    B: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<<Cors<S> as Service<Request>>::Future, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        futures::ready!(self.plain.poll_ready(context))?;
        self.cors.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if *request.method() == Method::OPTIONS && !asks_first(&request) {
            return Either::Right(self.plain.call(request));
        }
        Either::Left(self.cors.call(request))
    }
}

fn asks_first(request: &Request) -> bool {
    let has = |name| request.headers().contains_key(name);
    has(header::ORIGIN) && has(header::ACCESS_CONTROL_REQUEST_METHOD)
}
