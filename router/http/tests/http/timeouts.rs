//! `--request-timeout`: an answer that takes too long is given up, and its request cancelled.

use std::time::Duration;

use headrace_http::Surface;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::world::{Setup, World, post, soon};

const LIMIT: Duration = Duration::from_secs(5);

/// Time passes when everybody waits.
async fn hasty(max_batch_size: u32) -> World {
    let surface = Surface { request_timeout: Some(LIMIT), sse_ping: None, ..Surface::default() };
    let world = World::with(Setup { surface, max_batch_size, ..Setup::default() }).await;
    tokio::time::pause();
    world
}

fn ask(tokens: u32) -> Value {
    json!({"inputs": "Hello", "parameters": {"max_new_tokens": tokens}})
}

#[tokio::test]
async fn a_whole_answer_that_takes_too_long_is_504_and_its_request_is_cancelled() {
    let world = hasty(8).await;
    world.handle.stall();
    for path in ["/generate", "/"] {
        let answer = world.post(path, ask(5)).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (504, "timeout"), "{path}");
        assert!(answer.error().contains("5s") && answer.error().contains("--request-timeout"), "{}", answer.error());
    }
    world.handle.resume();
    world.wait_until_idle().await;
}

#[tokio::test]
async fn a_stream_that_takes_too_long_ends_with_an_event_that_says_so() {
    let world = hasty(8).await;
    let mut body = world.open(post("/generate_stream", ask(100).to_string())).await.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"data: "), "{first:?}");
    world.handle.stall();
    let rest = body.collect().await.unwrap().to_bytes();
    let last = std::str::from_utf8(&rest).unwrap().trim_end().rsplit("\n\n").next().unwrap().to_owned();
    assert!(last.contains(r#""error_type":"timeout""#), "{last}");
    world.handle.resume();
    world.wait_until_idle().await;
}

#[tokio::test]
async fn a_request_that_only_waits_is_given_up_too() {
    let world = hasty(1).await;
    world.handle.stall();
    let _running = world.open(post("/generate_stream", ask(100).to_string())).await;
    let answer = world.post("/generate", ask(5)).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (504, "timeout"));
    soon(async {
        while world.engine.snapshot().waiting > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    world.handle.resume();
}

#[tokio::test]
async fn an_answer_in_time_is_as_it_always_was() {
    let world = hasty(8).await;
    let answer = world.post("/generate", ask(5)).await;
    assert_eq!(
        (answer.status.as_u16(), answer.json()["generated_text"].as_str()),
        (200, Some(&*world.expected("Hello", 5)))
    );
}
