//! The server's own socket: taken early, so that a busy port is known before a model is loaded; opened late, so that
//! nobody connects to a server that cannot answer yet.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

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

/// An address that is ours, though nobody can connect yet.
#[derive(Debug)]
pub struct Reserved {
    socket: TcpSocket,
    asked: SocketAddr,
}

impl Reserved {
    /// Takes the address.
    pub fn new(config: &HttpConfig) -> Result<Self, ListenError> {
        let asked = SocketAddr::new(config.address, config.port);
        match bind(asked) {
            Ok(socket) => Ok(Self { socket, asked }),
            Err(error) => Err(explain(asked, error)),
        }
    }

    /// Lets clients connect.
    pub fn listen(self) -> Result<TcpListener, ListenError> {
        let asked = self.asked;
        self.socket.listen(BACKLOG).map_err(|error| explain(asked, error))
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Old connections of a server that has just ended must not keep its successor out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
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
        }
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_named() {
        let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = other.local_addr().expect("an address").port();
        let error = Reserved::new(&config(Ipv4Addr::LOCALHOST, port)).expect_err("it is taken").to_string();
        assert!(error.starts_with(&format!("port {port} of 127.0.0.1 is in use")), "{error}");
    }

    #[test]
    fn an_address_of_another_machine_is_named() {
        let error = Reserved::new(&config(Ipv4Addr::new(192, 0, 2, 1), 0)).expect_err("not ours").to_string();
        assert!(error.contains("192.0.2.1 is no address of this machine"), "{error}");
    }

    #[tokio::test]
    async fn nobody_connects_before_the_server_listens() {
        let reserved = Reserved::new(&config(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = reserved.socket.local_addr().expect("an address");
        assert!(TcpStream::connect(address).is_err());
        let _listener = reserved.listen().expect("our own port");
        assert!(TcpStream::connect(address).is_ok());
    }
}
