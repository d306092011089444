//! How a rank is reached: HTTP/2 over a Unix socket or TCP.

use std::error::Error;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::address::ShardAddress;

/// Receive windows, bytes. Larger than one step's largest usual answer, so no answer waits for a window update.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Between two attempts to connect: doubles from the first to the last. Short, because it adds to the time from a start
/// to the first token.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// Tries until the rank accepts; every failure goes to `failed`. The caller sets the time limit.
///
/// The channel reconnects by itself when a later call finds its connection broken.
pub(crate) async fn connect(address: &ShardAddress, mut failed: impl FnMut(String)) -> Channel {
    let mut pause = FIRST_PAUSE;
    loop {
        match connect_once(address).await {
            Ok(channel) => return channel,
            Err(error) => failed(causes(&error)),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

async fn connect_once(address: &ShardAddress) -> Result<Channel, tonic::transport::Error> {
    // The connector ignores the URI; it becomes the requests' authority.
    let endpoint = Endpoint::from_static("http://shard")
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    match address.clone() {
        ShardAddress::Unix(path) => {
            let connector = service_fn(move |_: Uri| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            });
            endpoint.connect_with_connector(connector).await
        }
        ShardAddress::Tcp(host) => {
            let connector = service_fn(move |_: Uri| {
                let host = host.clone();
                async move {
                    let stream = TcpStream::connect(host).await?;
                    stream.set_nodelay(true)?; // a step of a few bytes must not wait for the last one's acknowledgement
                    Ok::<_, std::io::Error>(TokioIo::new(stream))
                }
            });
            endpoint.connect_with_connector(connector).await
        }
    }
}

/// An error with its causes, each once. Tonic's own sentence for most of them is only "transport error".
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for error in std::iter::successors(Some(error), |&error| error.source()) {
        let cause = error.to_string();
        if cause == "transport error" || text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    if text.is_empty() { error.to_string() } else { text }
}
