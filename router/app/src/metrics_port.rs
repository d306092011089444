//! `--prometheus-port`: `/metrics` on a port of its own, where Text Generation Inference's scrapers look for it.

use std::io;
use std::net::SocketAddr;

use headrace_http::MetricsHandle;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Shows metrics until it is dropped.
#[derive(Debug)]
pub struct MetricsPort(JoinHandle<io::Result<()>>);

impl MetricsPort {
    /// Opens the port beside a server that listens on `server`. `None`: it is that server's own port, or it cannot be
    /// had. Several servers may share a machine, and all but one find the default port taken: that stops nobody.
    pub async fn open(port: u16, server: SocketAddr, metrics: MetricsHandle) -> Option<Self> {
        if port == server.port() {
            return None;
        }
        let asked = SocketAddr::new(server.ip(), port);
        let listener = TcpListener::bind(asked).await.and_then(|listener| Ok((listener.local_addr()?, listener)));
        match listener {
            Ok((address, listener)) => {
                tracing::info!("metrics are also at http://{address}/metrics");
                let app = headrace_http::metrics_router(metrics);
                Some(Self(tokio::spawn(headrace_http::serve(listener, app, std::future::pending()))))
            }
            Err(error) => {
                let own = server.port();
                tracing::warn!(
                    "cannot listen on port {port} of {}: {error}; metrics are at /metrics of port {own} only; name \
                     another port with --prometheus-port",
                    server.ip(),
                );
                None
            }
        }
    }
}

impl Drop for MetricsPort {
    fn drop(&mut self) {
        self.0.abort();
    }
}
