//! What somebody needs who wants to judge figures, or to get them again.

use std::fs;
use std::thread::available_parallelism;

use headrace_bench::Origin;

/// Of this process, on this machine, now.
pub fn here() -> Origin {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let now = jiff::Timestamp::now();
    Origin {
        command: command_line(&words),
        started: now.round(jiff::Unit::Second).unwrap_or(now).to_string(),
        machine: machine(),
        version: format!("headrace {}", env!("CARGO_PKG_VERSION")),
    }
}

/// As a shell reads it, but for secrets. The program is named without its directory.
fn command_line(words: &[String]) -> String {
    let mut line = Vec::new();
    let mut secret = false;
    for (place, word) in words.iter().enumerate() {
        let shown = match word.split_once('=') {
            _ if place == 0 => word.rsplit('/').next().unwrap_or_default().to_owned(),
            _ if secret => HIDDEN.to_owned(),
            Some((flag, _)) if SECRETS.contains(&flag) => format!("{flag}={HIDDEN}"),
            _ => quoted(word),
        };
        secret = SECRETS.contains(&word.as_str());
        line.push(shown);
    }
    line.join(" ")
}

/// Flags whose values are in no report: the client's, and those of a server that it starts.
const SECRETS: [&str; 4] = ["--api-key", "--api_key", "--hf-token", "--admin-api-key"];
const HIDDEN: &str = "…";

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// What Linux says; elsewhere less.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let after_colon = |line: &str| line.split_once(':').map(|(_, value)| value.trim().to_owned());
    let field = |text: &str, name: &str| text.lines().find(|line| line.starts_with(name)).and_then(after_colon);
    let cores = available_parallelism().map(|cores| format!("{cores} cores")).ok();
    let processor = field(&read("/proc/cpuinfo"), "model name");
    let kilobytes =
        field(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let memory = kilobytes.map(|kilobytes| format!("{:.0} GB", kilobytes * 1024.0 / 1e9));
    let kernel = read("/proc/sys/kernel/osrelease");
    let system = format!("{} {}", std::env::consts::OS, kernel.trim());
    [cores, processor, memory, Some(system.trim().to_owned())].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again_and_tells_no_secret() {
        let words =
            ["/somewhere/headrace", "bench", "--prompt", "it's so", "--api-key", "k1", "--", "x", "--api-key=k2", ""];
        let line = command_line(&words.map(str::to_owned));
        assert_eq!(line, r"headrace bench --prompt 'it'\''s so' --api-key … -- x --api-key=… ''");
    }
}
