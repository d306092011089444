//! Accepts connections, within limits, until told to stop.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::stall::{Stalled, Stalling};

/// Serves `app` on `listener` until `shutdown` is ready; then finishes the answers under way and returns.
///
/// A drain has two parts, and this is the second: first call `Engine::drain` and keep serving, so that new requests are
/// refused with 503 while old ones finish; when nothing runs any more, let `shutdown` be ready.
pub async fn serve(listener: TcpListener, app: Router, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    serve_within(listener, app, shutdown, Bounds::default()).await
}

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Time for the headers of a request, idle time before them included. Longer than balancers keep a connection
    /// (60 s), so that they close it first.
    header_time: Duration,
    header_bytes: usize,
    headers: usize,
    /// Time in which a client must take something of what is sent.
    write_stall: Duration,
    connections: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            header_time: Duration::from_secs(75),
            header_bytes: 64 * 1024,
            headers: 100,
            write_stall: Duration::from_secs(60),
            connections: 8192,
        }
    }
}

async fn serve_within(
    listener: TcpListener,
    app: Router,
    shutdown: impl Future<Output = ()>,
    bounds: Bounds,
) -> io::Result<()> {
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < bounds.connections => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, app.clone(), bounds, stopping.clone()));
                }
                Err(error) => pause_after(error).await?,
            },
        }
    }
    drop(listener);
    // Nobody may be left to hear it.
    let _ = stop.send(true);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// A peer that left before it was accepted is nothing; a lack of file descriptors or memory passes; the rest does not.
async fn pause_after(error: io::Error) -> io::Result<()> {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput};
    match error.kind() {
        ConnectionAborted | ConnectionRefused | ConnectionReset => Ok(()),
        InvalidInput => Err(error),
        _ => {
            tracing::warn!("cannot accept a connection: {error}; trying again in {ACCEPT_PAUSE:?}");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            Ok(())
        }
    }
}

async fn connection(stream: TcpStream, app: Router, bounds: Bounds, mut stopping: watch::Receiver<bool>) {
    // Tokens are small and wanted at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("cannot set TCP_NODELAY: {error}");
    }
    let stalled = Stalled::default();
    let stream = TokioIo::new(Stalling::new(stream, bounds.write_stall, stalled.clone()));
    let app = app.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(stalled.clone());
        request
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_time)
        .max_headers(bounds.headers)
        .max_header_size(bounds.header_bytes)
        .serve_connection(stream, TowerToHyperService::new(app));
    let mut serving = pin!(serving);
    // An error means that `serve_within` is gone, which is a stop as well.
    let stop = async move { drop(stopping.wait_for(|&stop| stop).await) };
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("connection ended: {error}");
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
