//! What a shard writes to its standard streams, turned into our log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};
use tracing::Level;

/// Bytes of one line; the rest of a longer one is dropped.
const MAX_LINE: usize = 64 * 1024;
/// How a shard's closing line begins.
pub const LAST_WORDS: &str = "error: ";
/// Lines kept to explain a death.
const KEPT_LINES: usize = 10;

/// The last lines of a stream, newest last.
#[derive(Clone, Debug, Default)]
pub struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub fn to_vec(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Logs every line with the rank in front until the stream ends, and remembers the last ones.
///
/// A line `error: …` is how a shard says why it ends. If it was the last one it is not logged here: the report of the
/// death carries it, and nobody should read it twice.
pub async fn follow(stream: impl AsyncRead + Unpin, rank: u32, last: LastLines) {
    let mut reader = BufReader::new(stream);
    let mut held: Option<String> = None;
    while let Ok(Some(line)) = next_line(&mut reader).await {
        let (level, message) = read_line(&line);
        if message.is_empty() {
            continue;
        }
        if let Some(message) = held.take() {
            log(Level::ERROR, rank, &message);
        }
        last.push(message.clone());
        match line.starts_with(LAST_WORDS) {
            true => held = Some(message),
            false => log(level, rank, &message),
        }
    }
}

/// A JSON line `{"level": …, "message": …, …}` gives its level and its text, further fields appended; any other line
/// is information as it stands.
fn read_line(line: &str) -> (Level, String) {
    match serde_json::from_str::<Map<String, Value>>(line) {
        Ok(mut fields) => match fields.remove("message") {
            Some(message) => (level(fields.remove("level")), with_fields(&message, fields)),
            None => (Level::INFO, line.to_owned()),
        },
        Err(_) => (Level::INFO, line.to_owned()),
    }
}

fn level(given: Option<Value>) -> Level {
    let name = given.as_ref().and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    match name.as_str() {
        "critical" | "fatal" | "error" => Level::ERROR,
        "warning" | "warn" => Level::WARN,
        "debug" => Level::DEBUG,
        "trace" => Level::TRACE,
        _ => Level::INFO,
    }
}

/// An exception goes below the message; our own log has the time and the place already.
fn with_fields(message: &Value, mut fields: Map<String, Value>) -> String {
    let mut text = plain(message);
    let exception = fields.remove("exception");
    for (name, value) in fields.iter().filter(|(name, _)| !["timestamp", "target"].contains(&name.as_str())) {
        text.push_str(&format!(" {name}={}", plain(value)));
    }
    if let Some(exception) = exception {
        text.push('\n');
        text.push_str(&plain(&exception));
    }
    text
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A level is part of a `tracing` call site, so each has its own.
fn log(level: Level, rank: u32, message: &str) {
    match level {
        Level::ERROR => tracing::error!("[rank {rank}] {message}"),
        Level::WARN => tracing::warn!("[rank {rank}] {message}"),
        Level::INFO => tracing::info!("[rank {rank}] {message}"),
        Level::DEBUG => tracing::debug!("[rank {rank}] {message}"),
        Level::TRACE => tracing::trace!("[rank {rank}] {message}"),
    }
}

/// The next line without its end; of a progress line, what was written last. `None` at the end of the stream.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut any = false;
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(any.then(|| text_of(&line)));
        }
        any = true;
        let newline = chunk.iter().position(|&byte| byte == b'\n');
        let content = &chunk[..newline.unwrap_or(chunk.len())];
        let room = MAX_LINE - line.len();
        line.extend_from_slice(&content[..content.len().min(room)]);
        let used = newline.map_or(chunk.len(), |at| at + 1);
        reader.consume(used);
        if newline.is_some() {
            return Ok(Some(text_of(&line)));
        }
    }
}

fn text_of(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    text.rsplit('\r').next().unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_line_gives_its_level_its_message_and_its_fields() {
        let line = r#"{"timestamp": "now", "level": "WARNING", "message": "slow", "ms": 12, "op": "load"}"#;
        assert_eq!(read_line(line), (Level::WARN, "slow ms=12 op=load".to_owned()));
    }

    #[test]
    fn a_plain_line_is_information_as_it_stands() {
        assert_eq!(read_line("Traceback (most recent call last):").0, Level::INFO);
        assert_eq!(read_line(r#"{"not": "a log line"}"#).1, r#"{"not": "a log line"}"#);
    }

    #[tokio::test]
    async fn a_line_without_end_takes_bounded_memory() {
        let endless = vec![b'x'; 3 * MAX_LINE];
        let mut reader = BufReader::new(&endless[..]);
        let line = next_line(&mut reader).await.expect("no I/O error").expect("a line");
        assert_eq!(line.len(), MAX_LINE);
        assert_eq!(next_line(&mut reader).await.expect("no I/O error"), None);
    }

    #[tokio::test]
    async fn of_a_progress_line_the_last_state_is_shown() {
        let mut reader = BufReader::new(&b"10%\r50%\r100%\r\nnext"[..]);
        assert_eq!(next_line(&mut reader).await.expect("no I/O error").as_deref(), Some("100%"));
        assert_eq!(next_line(&mut reader).await.expect("no I/O error").as_deref(), Some("next"));
    }

    #[tokio::test]
    async fn only_the_last_lines_are_kept() {
        let text: String = (0..50).map(|n| format!("line {n}\n")).collect();
        let last = LastLines::default();
        follow(text.as_bytes(), 0, last.clone()).await;
        let kept = last.to_vec();
        assert_eq!((kept.len(), kept.last().map(String::as_str)), (KEPT_LINES, Some("line 49")));
    }
}
