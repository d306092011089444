//! Where one rank listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Address of one rank: `unix:/path/to/socket` or `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ShardAddress {
    /// A Unix socket: the default, for shards on this machine.
    Unix(PathBuf),
    /// `host:port`; an IPv6 address in brackets.
    Tcp(String),
}

/// The text is no shard address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no shard address ({reason}); write unix:/path/to/socket or host:port")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl FromStr for ShardAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = |reason| AddressError { text: text.to_owned(), reason };
        match text.strip_prefix("unix:") {
            Some(path) => unix(path).map_err(error),
            None => tcp(text).map_err(error),
        }
    }
}

/// Takes `/path`, and `///path` of the URI form `unix:///path`.
fn unix(path: &str) -> Result<ShardAddress, &'static str> {
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() { Err("the path is empty") } else { Ok(ShardAddress::Unix(PathBuf::from(path))) }
}

fn tcp(text: &str) -> Result<ShardAddress, &'static str> {
    let (host, port) = text.rsplit_once(':').ok_or("there is no port")?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || host == "[]" {
        return Err("the host is empty");
    }
    if host.contains('/') {
        return Err("a host has no slash");
    }
    if host.contains(':') && !bracketed {
        return Err("an IPv6 address needs brackets");
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(ShardAddress::Tcp(text.to_owned())),
        _ => Err("the port is not a number from 1 to 65535"),
    }
}

impl fmt::Display for ShardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ShardAddress {
        text.parse().expect("a good address")
    }

    #[test]
    fn unix_sockets_are_read_in_both_spellings_and_written_in_one() {
        assert_eq!(parsed("unix:/run/shard-0.sock"), ShardAddress::Unix("/run/shard-0.sock".into()));
        assert_eq!(parsed("unix:///run/shard-0.sock").to_string(), "unix:/run/shard-0.sock");
        assert_eq!(parsed("unix:shard-0.sock"), ShardAddress::Unix("shard-0.sock".into()));
    }

    #[test]
    fn hosts_and_ports_are_read_and_written_unchanged() {
        for text in ["127.0.0.1:5000", "shard-0.internal:65535", "[::1]:80"] {
            assert_eq!(parsed(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "no port"),
            ("unix:", "path is empty"),
            ("localhost", "no port"),
            (":80", "host is empty"),
            ("::1:80", "brackets"),
            ("host:0", "1 to 65535"),
            ("host:65536", "1 to 65535"),
            ("http://host:80", "slash"),
        ] {
            let error = text.parse::<ShardAddress>().expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
