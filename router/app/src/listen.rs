//! The server's own socket, open from the first moment: a busy port is known before a model is loaded, and while it
//! loads whoever asks is told so.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use headrace_http::Front;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::HttpConfig;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("port {port} of {address} is in use (--port); stop what listens there or choose another")]
    InUse { address: IpAddr, port: u16 },
    #[error("{address} is no address of this machine (--hostname)")]
    NoSuchAddress { address: IpAddr },
    #[error("port {port} needs privileges (--port); choose one from 1024 on")]
    Privileged { port: u16 },
    #[error("cannot listen on {address} port {port}: {reason}")]
    Other { address: IpAddr, port: u16, reason: io::Error },
}

/// Where clients come in: to [`Front`] first, and to what it is opened with from then on.
#[derive(Debug)]
pub struct Door {
    pub front: Front,
    pub address: SocketAddr,
    pub http: JoinHandle<io::Result<()>>,
    /// Ends `http`, when the answers under way are out.
    pub stop: oneshot::Sender<()>,
}

impl Door {
    /// Takes the address and answers there. `doing` is what the server does before it can do more than that.
    pub fn open(config: &HttpConfig, doing: &'static str) -> Result<Self, ListenError> {
        let asked = SocketAddr::new(config.address, config.port);
        let listening = listen(asked).and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = listening.map_err(|error| explain(asked, error))?;
        let front = Front::new(doing);
        let (stop, stopped) = oneshot::channel();
        let http = headrace_http::serve(listener, front.router(), async { drop(stopped.await) });
        tracing::info!("listening on http://{address}; GET /readyz says when requests are taken");
        Ok(Self { front, address, http: tokio::spawn(http), stop })
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Old connections of a server that has just ended must not keep its successor out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn explain(asked: SocketAddr, reason: io::Error) -> ListenError {
    let (address, port) = (asked.ip(), asked.port());
    match reason.kind() {
        ErrorKind::AddrInUse => ListenError::InUse { address, port },
        ErrorKind::AddrNotAvailable => ListenError::NoSuchAddress { address },
        ErrorKind::PermissionDenied => ListenError::Privileged { port },
        _ => ListenError::Other { address, port, reason },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    fn config(address: Ipv4Addr, port: u16) -> HttpConfig {
        HttpConfig {
            address: address.into(),
            port,
            served_model_names: Vec::new(),
            cors_allow_origin: Vec::new(),
            payload_limit: 1,
            validation_workers: 1,
            tokenizer_config: None,
            compute_type: None,
            surface: headrace_http::Surface::default(),
            chat_template: None,
            no_special_tokens_in_messages: false,
        }
    }

    #[tokio::test]
    async fn a_port_that_somebody_listens_on_is_named() {
        let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = other.local_addr().expect("an address").port();
        let error = Door::open(&config(Ipv4Addr::LOCALHOST, port), "").expect_err("it is taken").to_string();
        assert!(error.starts_with(&format!("port {port} of 127.0.0.1 is in use")), "{error}");
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_named() {
        let error = Door::open(&config(Ipv4Addr::new(192, 0, 2, 1), 0), "").expect_err("not ours").to_string();
        assert!(error.contains("192.0.2.1 is no address of this machine"), "{error}");
    }

    #[tokio::test]
    async fn clients_connect_from_the_first_moment() {
        let door = Door::open(&config(Ipv4Addr::LOCALHOST, 0), "loading").expect("a free port");
        assert!(TcpStream::connect(door.address).is_ok());
    }
}
