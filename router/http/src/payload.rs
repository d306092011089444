//! A JSON body within its limits: bytes, time, depth, UTF-8, JSON, types, in this order.

use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use crate::content_coding::Coding;
use crate::error::ApiError;
use crate::numbers::Object;
use crate::state::ServerState;
use crate::tokenization::LONG_BYTES;

/// A body of type `T`, and when all of it had arrived: times of the answer count from there.
pub(crate) struct Payload<T> {
    pub body: T,
    pub received: Instant,
}

/// What a body is read as: anything that one JSON object is, or several views of one object.
pub(crate) trait FromJson: Sized + Send + 'static {
    fn from_json(bytes: &[u8]) -> Result<Self, ApiError>;
}

impl<T: DeserializeOwned + Send + 'static> FromJson for T {
    fn from_json(bytes: &[u8]) -> Result<Self, ApiError> {
        parse(bytes)
    }
}

impl<T: FromJson> FromRequest<ServerState> for Payload<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, ApiError> {
        let limit = state.limits.payload_limit;
        let example = example(request.uri().path());
        let coding = match check_head(request.headers(), limit) {
            Ok(coding) => coding,
            Err(error) => {
                discard_unread(request).await;
                return Err(error);
            }
        };
        let bytes = read(request.into_body(), limit).await?;
        let received = Instant::now();
        let body = match short(&bytes, coding, limit)? {
            Some(content) => shallow(&content),
            None => state.tokenization.run(limit, move || shallow(&coding.decode(bytes, limit)?)).await?,
        };
        let body = body.map_err(|error| match error {
            ApiError::NotJson { reason, .. } => ApiError::NotJson { reason, example },
            other => other,
        })?;
        Ok(Self { body, received })
    }
}

/// A body that the route takes.
fn example(path: &str) -> &'static str {
    match path {
        "/v1/completions" => r#"{"prompt": "Hello"}"#,
        "/v1/chat/completions" | "/chat_tokenize" => r#"{"messages": [{"role": "user", "content": "Hello"}]}"#,
        "/vertex" => r#"{"instances": [{"inputs": "Hello"}]}"#,
        _ if path.starts_with("/v2/") => r#"{"inputs": [{"name": "prompt", "data": ["Hello"]}]}"#,
        _ => EXAMPLE,
    }
}

const EXAMPLE: &str = r#"{"inputs": "Hello"}"#;

/// The content of a body that is soon decoded and parsed; `None`: it is a long one.
fn short(bytes: &Bytes, coding: Coding, limit: usize) -> Result<Option<Bytes>, ApiError> {
    if bytes.len() > LONG_BYTES {
        return Ok(None);
    }
    // However small it is, it may become as much as the limit allows.
    match coding.decode(bytes.clone(), limit.min(LONG_BYTES)) {
        Ok(content) => Ok(Some(content)),
        Err(ApiError::TooLarge { .. }) if limit > LONG_BYTES => Ok(None),
        Err(error) => Err(error),
    }
}

/// What can be known before the body is read.
fn check_head(headers: &HeaderMap, limit: usize) -> Result<Coding, ApiError> {
    check_media_type(headers)?;
    refuse_unsent(headers, limit)?;
    Coding::of(headers)
}

/// `application/json` or `application/…+json`, with any parameters.
fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut all = headers.get_all(header::CONTENT_TYPE).iter();
    let given = all.next().and_then(|value| value.to_str().ok()).unwrap_or("none");
    if all.next().is_some() {
        return Err(ApiError::MediaType { given: "more than one".into() });
    }
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.strip_prefix("application/") {
        Some(subtype) if subtype == "json" || subtype.ends_with("+json") => Ok(()),
        _ => Err(ApiError::MediaType { given: shorten(given) }),
    }
}

/// A client that asks before it sends (`Expect: 100-continue`) is spared sending what is too large.
fn refuse_unsent(headers: &HeaderMap, limit: usize) -> Result<(), ApiError> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    match length {
        Some(length) if length > limit as u64 && headers.contains_key(header::EXPECT) => {
            Err(ApiError::TooLarge { limit })
        }
        _ => Ok(()),
    }
}

async fn read(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    within(READ_TIME, read_to_end(body, limit)).await?
}

async fn read_to_end(mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut all = BytesMut::new();
    while let Some(frame) = within(STALL_TIME, body.frame()).await? {
        let frame = frame.map_err(|error| ApiError::Broken { reason: shorten(&error.to_string()) })?;
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + data.len() > limit {
            discard(body).await;
            return Err(ApiError::TooLarge { limit });
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

async fn within<T>(limit: Duration, wanted: impl Future<Output = T>) -> Result<T, ApiError> {
    timeout(limit, wanted).await.map_err(|_| ApiError::TooSlow { limit })
}

/// Reads the body of a request that is refused unread, unless its client waits to be asked for it.
pub(crate) async fn discard_unread(request: Request) {
    if !request.headers().contains_key(header::EXPECT) {
        discard(request.into_body()).await;
    }
}

/// Reads on for a while: a client that is still sending would take a closed connection for the answer.
async fn discard(mut body: Body) {
    let read_on = async {
        let mut left = DISCARD_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let read = frame.into_data().map_or(0, |data| data.remaining());
            let Some(rest) = left.checked_sub(read) else { break };
            left = rest;
        }
    };
    // Late or not, the answer is the same.
    let _ = timeout(DISCARD_TIME, read_on).await;
}

/// Reads a body that does not nest too deep.
fn shallow<T: FromJson>(json: &[u8]) -> Result<T, ApiError> {
    if nests_too_deep(json) { Err(ApiError::TooDeep) } else { T::from_json(json) }
}

/// The parser counts levels only where somebody reads what is in them: this counts all, in one pass. Brackets within
/// strings are text.
fn nests_too_deep(json: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    json.iter().any(|&byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth >= MAX_DEPTH
    })
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| not_json(error.to_string()))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let object: Object<T> = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        rejection(path, error.inner())
    })?;
    json.end().map_err(|error| not_json(error.to_string()))?;
    Ok(object.0)
}

/// Which route it was is known outside.
fn not_json(reason: String) -> ApiError {
    ApiError::NotJson { reason, example: EXAMPLE }
}

fn rejection(path: String, error: &serde_json::Error) -> ApiError {
    let reason = shorten(&error.to_string());
    match error.classify() {
        Category::Data if path == "." => ApiError::WrongType { path: "body".into(), reason },
        Category::Data => ApiError::WrongType { path: shorten(&path), reason },
        Category::Syntax if reason.starts_with("recursion limit exceeded") => ApiError::TooDeep,
        Category::Syntax | Category::Eof | Category::Io => not_json(reason),
    }
}

/// The ends of a text: serde repeats what the client sent, whole; the sentence about it is at the end.
fn shorten(text: &str) -> String {
    let chars = text.chars().count();
    if chars <= 2 * SHOWN_CHARS {
        return text.to_owned();
    }
    let head: String = text.chars().take(SHOWN_CHARS).collect();
    let tail: String = text.chars().skip(chars - SHOWN_CHARS).collect();
    format!("{head}…{tail}")
}

/// For the next piece of a body.
const STALL_TIME: Duration = Duration::from_secs(60);
/// For all of it, however small its pieces: 2 MB take this long at 7 kB/s.
const READ_TIME: Duration = Duration::from_secs(300);

const DISCARD_TIME: Duration = Duration::from_secs(2);
const DISCARD_BYTES: usize = 16 << 20;

/// Levels of arrays and objects from which on a body is refused: serde_json's own limit, on every body.
pub(crate) const MAX_DEPTH: u32 = 128;

const SHOWN_CHARS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        "[".repeat(levels) + &"]".repeat(levels)
    }

    #[test]
    fn levels_are_counted_where_they_are_open_at_once() {
        for good in [nested(127), format!("[{}]", vec![nested(126); 50].join(",")), "]".repeat(500) + &nested(127)] {
            assert!(!nests_too_deep(good.as_bytes()), "{good}");
        }
        for deep in [nested(128), "[".repeat(128), format!("[{},{}]", nested(5), nested(127)), "{\"a\":".repeat(128)] {
            assert!(nests_too_deep(deep.as_bytes()), "{deep}");
        }
    }

    #[test]
    fn brackets_in_strings_are_text_whatever_is_escaped_there() {
        let brackets = "[".repeat(500);
        for text in
            [brackets.clone(), format!(r#"\"{brackets}"#), format!(r#"\\\"{brackets}"#), format!(r"{brackets}\\")]
        {
            assert!(!nests_too_deep(format!(r#"{{"a": "{text}"}}"#).as_bytes()), "{text}");
        }
        assert!(nests_too_deep(format!(r#"{{"a": "\\", "b": {brackets}"#).as_bytes()), "the string ends before");
    }

    #[test]
    fn the_parser_takes_what_the_count_takes() {
        let parsed = |levels| serde_json::from_str::<serde_json::Value>(&nested(levels)).is_ok();
        assert!(parsed(MAX_DEPTH as usize - 1) && !parsed(MAX_DEPTH as usize));
    }
}
