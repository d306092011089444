//! What the user sees when the server is ready: two lines on standard output.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use headrace_scheduler::Tokens;

/// Facts of the ready line.
#[derive(Debug)]
pub struct Ready<'a> {
    pub model_id: &'a str,
    pub address: SocketAddr,
    pub dtype: &'a str,
    pub device: &'a str,
    pub pool: Tokens,
    pub pool_bytes: u64,
    pub took: Duration,
}

impl Ready<'_> {
    /// Prints both lines. A closed standard output is no reason to stop serving.
    pub fn announce(&self) {
        let _ = writeln!(std::io::stdout(), "{self}");
    }
}

impl fmt::Display for Ready<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = format!("http://{}", reachable(self.address));
        let gigabytes = self.pool_bytes as f64 / 1e9;
        write!(f, "Headrace serves {} on {url} ({} on {}, ", self.model_id, self.dtype, self.device)?;
        write!(f, "{} tokens of KV cache in {gigabytes:.2} GB, ", self.pool)?;
        writeln!(f, "started in {:.1} s). Try:", self.took.as_secs_f64())?;
        let body = r#"{"inputs": "The capital of France is", "parameters": {"max_new_tokens": 20}}"#;
        write!(f, "curl {url}/generate -H 'content-type: application/json' -d '{body}'")
    }
}

/// Where a client on this machine reaches a server that listens on `address`: 'every interface' is no destination.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(address: &str) -> Vec<String> {
        let ready = Ready {
            model_id: "org/model",
            address: address.parse().expect("an address"),
            dtype: "float32",
            device: "cpu",
            pool: Tokens(1024),
            pool_bytes: 23_592_960,
            took: Duration::from_millis(3140),
        };
        ready.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn there_are_two_lines_and_the_second_is_a_command() {
        let lines = lines("127.0.0.1:3000");
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("Headrace serves org/model on http://127.0.0.1:3000 "), "{}", lines[0]);
        assert!(lines[1].starts_with("curl http://127.0.0.1:3000/generate "), "{}", lines[1]);
    }

    #[test]
    fn every_interface_is_shown_as_this_machine() {
        assert!(lines("0.0.0.0:80")[1].contains("http://127.0.0.1:80/"));
        assert!(lines("[::]:80")[1].contains("http://[::1]:80/"));
        assert!(lines("192.0.2.7:80")[1].contains("http://192.0.2.7:80/"));
    }
}
