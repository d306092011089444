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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
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
                    // Tokens are small and wanted at once.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!("cannot set TCP_NODELAY: {error}");
                    }
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

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    app: Router,
    bounds: Bounds,
    mut stopping: watch::Receiver<bool>,
) {
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
        // Copying a frame and the few bytes around it together costs less than telling the kernel of three pieces.
        .writev(false)
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll};

    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;

    /// The client's end of a connection to `app`.
    fn connect(app: Router, buffer: usize) -> DuplexStream {
        let (ours, theirs) = duplex(buffer);
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(async move {
            connection(theirs, app, Bounds::default(), stopping).await;
            drop(stop);
        });
        ours
    }

    /// An answer without end; when it is dropped, it tells whether its connection had stalled.
    struct Endless(Option<oneshot::Sender<bool>>, Stalled);

    impl Drop for Endless {
        fn drop(&mut self) {
            let _ = self.0.take().map(|told| told.send(self.1.get()));
        }
    }

    fn endless(told: oneshot::Sender<bool>) -> Router {
        let told = Arc::new(Mutex::new(Some(told)));
        let handler = move |request: Request<Body>| {
            let stalled = request.extensions().get::<Stalled>().cloned().unwrap();
            let endless = Endless(told.lock().unwrap().take(), stalled);
            let frames = futures::stream::unfold(endless, |endless| async {
                Some((Ok::<_, Infallible>(Bytes::from_static(b"a frame of the answer")), endless))
            });
            std::future::ready(Body::from_stream(frames))
        };
        Router::new().route("/", get(handler))
    }

    async fn ask(app: Router) -> DuplexStream {
        let mut client = connect(app, 64);
        client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        client.read_u8().await.unwrap();
        client
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_to_a_client_that_reads_nothing_knows_why_it_is_dropped() {
        let (tell, told) = oneshot::channel();
        let client = ask(endless(tell)).await;
        let began = Instant::now();
        assert!(told.await.unwrap());
        assert_eq!(began.elapsed(), Bounds::default().write_stall);
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_has_not_stalled() {
        let (tell, told) = oneshot::channel();
        drop(ask(endless(tell)).await);
        assert!(!told.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_whole_request_ends_in_bounded_time() {
        for sent in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: t"] {
            let mut client = connect(Router::new(), 1024);
            client.write_all(sent.as_bytes()).await.unwrap();
            let began = Instant::now();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(began.elapsed(), Bounds::default().header_time, "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends_in_bounded_time_after_its_last_answer() {
        let mut client = connect(Router::new().route("/", get(|| async {})), 1024);
        client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        let began = Instant::now();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        assert_eq!(began.elapsed(), Bounds::default().header_time);
    }

    /// A connection that counts its writes.
    struct Counting {
        inner: DuplexStream,
        writes: Arc<AtomicUsize>,
    }

    impl AsyncRead for Counting {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Counting {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.inner).poll_write(cx, data)
        }

        /// As a socket: all pieces in one call.
        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            pieces: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let data: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            self.poll_write(cx, &data)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn each_frame_of_a_stream_is_one_write() {
        let (ours, theirs) = duplex(1 << 16);
        let writes = Arc::new(AtomicUsize::new(0));
        let (frames, coming) = tokio::sync::mpsc::channel(1);
        let coming = Arc::new(Mutex::new(Some(coming)));
        let app = Router::new().route(
            "/",
            get(move || {
                let coming = coming.lock().unwrap().take().unwrap();
                let frames = futures::stream::unfold(coming, async |mut coming: tokio::sync::mpsc::Receiver<Bytes>| {
                    let frame = coming.recv().await?;
                    Some((Ok::<_, Infallible>(frame), coming))
                });
                std::future::ready(Body::from_stream(frames))
            }),
        );
        let counting = Counting { inner: theirs, writes: writes.clone() };
        let (_stop, stopping) = watch::channel(false);
        tokio::spawn(connection(counting, app, Bounds::default(), stopping));
        let mut client = ours;
        client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        for n in 1..=5 {
            frames.send(Bytes::from(format!("data: frame {n}\n\n"))).await.unwrap();
            let mut read = Vec::new();
            while !String::from_utf8_lossy(&read).contains(&format!("frame {n}\n\n\r\n")) {
                read.push(client.read_u8().await.unwrap());
            }
        }
        // The head may go out before the first frame.
        assert!((5..=6).contains(&writes.load(Ordering::Relaxed)), "{writes:?}");
    }
}
