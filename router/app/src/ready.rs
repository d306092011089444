//! What the user sees when the server is ready: two lines on standard output, in the form of the log.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use headrace_scheduler::Tokens;
use serde_json::json;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

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
    /// Requests must bring an API key.
    pub asks_for_key: bool,
    /// Lines are JSON.
    pub json: bool,
}

impl Ready<'_> {
    /// Prints both lines. A closed standard output is no reason to stop serving.
    pub fn announce(&self) {
        let lines = self.lines().map(|line| if self.json { as_json(&line) } else { line });
        let _ = writeln!(std::io::stdout(), "{}", lines.join("\n"));
    }

    /// What is served and where, and how to try it.
    fn lines(&self) -> [String; 2] {
        let url = format!("http://{}", reachable(self.address));
        let gigabytes = self.pool_bytes as f64 / 1e9;
        let facts = format!(
            "{} on {}, {} tokens of KV cache in {gigabytes:.2} GB, started in {:.1} s",
            self.dtype,
            self.device,
            self.pool,
            self.took.as_secs_f64()
        );
        // A line that people copy and logs keep: no place for a key.
        let key = if self.asks_for_key { " -H 'Authorization: Bearer <your key>'" } else { "" };
        let body = r#"{"inputs": "The capital of France is", "parameters": {"max_new_tokens": 20}}"#;
        [
            format!("Headrace serves {} on {url} ({facts}). Try:", self.model_id),
            format!("curl {url}/generate -H 'content-type: application/json'{key} -d '{body}'"),
        ]
    }
}

/// With the fields that every line of the log has.
fn as_json(line: &str) -> String {
    let mut now = String::new();
    // Without it, the line still says what matters.
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    json!({"timestamp": now, "level": "INFO", "message": line}).to_string()
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

    fn ready(address: &str) -> Ready<'static> {
        Ready {
            model_id: "org/model",
            address: address.parse().expect("an address"),
            dtype: "float32",
            device: "cpu",
            pool: Tokens(1024),
            pool_bytes: 23_592_960,
            took: Duration::from_millis(3140),
            asks_for_key: false,
            json: false,
        }
    }

    fn lines(address: &str) -> [String; 2] {
        ready(address).lines()
    }

    #[test]
    fn there_are_two_lines_and_the_second_is_a_command() {
        let [served, command] = lines("127.0.0.1:3000");
        let expected = "Headrace serves org/model on http://127.0.0.1:3000 (float32 on cpu, 1024 tokens of KV cache in \
                        0.02 GB, started in 3.1 s). Try:";
        assert_eq!(served, expected);
        assert!(command.starts_with("curl http://127.0.0.1:3000/generate ") && !command.contains("Authorization"));
    }

    #[test]
    fn where_a_key_is_asked_for_the_command_says_where_it_goes() {
        let [_, command] = Ready { asks_for_key: true, ..ready("127.0.0.1:3000") }.lines();
        assert!(command.contains("-H 'Authorization: Bearer <your key>' -d "), "{command}");
    }

    #[test]
    fn a_line_of_json_has_the_logs_fields() {
        let line: serde_json::Value = serde_json::from_str(&as_json("a \"b\"")).expect("JSON");
        assert_eq!((&line["level"], &line["message"]), (&json!("INFO"), &json!("a \"b\"")));
        assert!(line["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    }

    #[test]
    fn every_interface_is_shown_as_this_machine() {
        assert!(lines("0.0.0.0:80")[1].contains("http://127.0.0.1:80/"));
        assert!(lines("[::]:80")[1].contains("http://[::1]:80/"));
        assert!(lines("192.0.2.7:80")[1].contains("http://192.0.2.7:80/"));
    }
}
