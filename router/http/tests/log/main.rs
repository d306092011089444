//! The log's line of a request that is refused, wherever that happens. In a process of its own, as a process has one log:
//! tracing asks once whether anybody wants what a place in the code says, and where tests of one process subscribe by turns
//! it may ask the thread of another test, which wants nothing, and never again.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

#[path = "../http/tokenizer.rs"]
#[allow(dead_code, reason = "shared")]
mod tokenizer;
#[path = "../http/world.rs"]
#[allow(dead_code, reason = "shared")]
mod world;

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use axum::body::Body;
use axum::http::Request;
use headrace_http::{ApiKeys, Surface};
use headrace_text::chat::{ChatTemplates, DEFAULT};
use serde_json::json;

use crate::world::{Setup, World, post};

/// In everything that a client sends but paths.
const SECRET: &str = "zanzibar";

thread_local! {
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What this thread logs: all of a test, as its runtime has no other.
struct Log;

impl Log {
    /// The first thing that a test does, so that nobody logs before all have a subscriber.
    fn begin() -> Self {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log);
            tracing::subscriber::set_global_default(lines.finish()).unwrap();
        });
        LINES.take(); // Of a test before, where one thread runs them all.
        Self
    }

    fn lines(&self, part: &str) -> Vec<String> {
        let text = String::from_utf8(LINES.with_borrow(Vec::clone)).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.extend_from_slice(piece));
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_refusal_is_one_line_and_shows_nothing_of_a_body() {
    let log = Log::begin();
    let surface = Surface { api_keys: ApiKeys::new(["key"]), ..Surface::default() };
    let sources = [(DEFAULT.to_owned(), "{{ messages[0].content }}".to_owned())].into();
    let chat_templates = ChatTemplates::parse(&sources, serde_json::Map::new());
    let world = World::with(Setup { chat_templates, surface, ..Setup::default() }).await;
    let text = |path: &str| Request::post(path).header("content-type", "text/plain").body(Body::from(SECRET)).unwrap();
    let json = |path: &str, body: serde_json::Value| post(path, body.to_string());
    let keyless = post("/generate", json!({"inputs": SECRET}).to_string());
    let cases = [
        (keyless, "/generate", "unauthorized"),
        (json("/nowhere", json!({"inputs": SECRET})), "/nowhere", "not_found"),
        (Request::get("/generate").body(Body::empty()).unwrap(), "/generate", "method_not_allowed"),
        (text("/generate"), "/generate", "unsupported_media_type"),
        (text("/v1/completions"), "/v1/completions", "unsupported_media_type"),
        (post("/generate", format!("{{{SECRET}")), "/generate", "bad_request"),
        (json("/generate", json!({"inputs": {"text": SECRET}})), "/generate", "validation"),
        (json("/v1/completions", json!({"prompt": [SECRET, 1]})), "/v1/completions", "validation"),
        (json("/chat_tokenize", json!({"messages": SECRET})), "/chat_tokenize", "validation"),
        (Request::get(format!("/v1/models/{SECRET}")).body(Body::empty()).unwrap(), "/v1/models/{*id}", "not_found"),
        // Those that get as far as a call have their line from it.
        (json("/generate", json!({"inputs": SECRET, "parameters": {"temperature": 0}})), "/generate", "validation"),
        (
            json("/v1/completions", json!({"prompt": SECRET, "suffix": SECRET})),
            "/v1/completions",
            "suffix not supported",
        ),
        (json("/vertex", json!({"instances": [{"inputs": ""}]})), "/vertex", "validation"),
    ];
    for (number, (mut request, route, error_type)) in cases.into_iter().enumerate() {
        let id = format!("request-{number}.");
        request.headers_mut().insert("x-request-id", id.parse().unwrap());
        if number > 0 {
            request.headers_mut().insert("authorization", "Bearer key".parse().unwrap());
        }
        let answer = world.send(request).await;
        assert!(answer.status.is_client_error(), "{route}: {}", answer.status);
        let lines = log.lines(&id);
        let [line] = &lines[..] else { panic!("{route} {error_type}: {lines:?}") };
        let said = format!("Refused route=\"{route}\" request_id=\"{id}\"");
        assert!(line.contains(" INFO ") && line.contains(&said), "{line}");
        assert!(line.ends_with(&format!("error_type=\"{error_type}\"")), "{line}");
    }
    assert_eq!(log.lines(SECRET), Vec::<String>::new());
}

#[tokio::test]
async fn an_answer_and_a_probe_that_fails_are_no_refusals() {
    let log = Log::begin();
    let world = World::new().await;
    world.post("/generate", json!({"inputs": "x", "parameters": {"max_new_tokens": 1}})).await;
    world.engine.drain();
    assert_eq!(world.get("/readyz").await.status, 503);
    assert_eq!((log.lines("Success").len(), log.lines("Refused").len()), (1, 0));
}
