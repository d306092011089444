//! Bodies that do not come, and bodies that need not come.

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{World, post, soon};

/// Pieces with a pause before each.
fn slowly(pieces: Vec<&'static str>, pause: u64) -> Body {
    Body::from_stream(stream::iter(pieces).then(move |piece| async move {
        tokio::time::sleep(std::time::Duration::from_secs(pause)).await;
        Ok::<_, std::convert::Infallible>(Bytes::from_static(piece.as_bytes()))
    }))
}

#[tokio::test]
async fn a_body_that_makes_no_progress_is_408() {
    let world = World::new().await;
    tokio::time::pause();
    for pieces in [vec![""], vec!["{", "}"]] {
        let answer = world.send(post("/generate", slowly(pieces, 61))).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (408, "request_timeout"));
        assert!(answer.error().contains("60s"), "{}", answer.error());
    }
}

#[tokio::test]
async fn a_slow_body_that_makes_progress_is_read() {
    let world = World::new().await;
    tokio::time::pause();
    let pieces = vec![r#"{"inputs""#, r#": "Hello", "#, r#""parameters": {"max_new_tokens""#, ": 1}}"];
    let answer = world.send(post("/generate", slowly(pieces, 59))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_for_ever_is_408() {
    let world = World::new().await;
    tokio::time::pause();
    let answer = world.send(post("/generate", slowly(vec![" "; 1000], 59))).await;
    assert_eq!(answer.status, 408);
    assert!(answer.error().contains("300s"), "{}", answer.error());
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_too_much_reads_413_at_once() {
    let world = World::new().await;
    let mut client = TcpStream::connect(world.listen().await).await.unwrap();
    let head = "POST /generate HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
                expect: 100-continue\r\ncontent-length: 2100000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 1024];
    let read = soon(client.read(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_server_that_drains_is_unhealthy_on_all_routes_of_health() {
    let world = World::new().await;
    world.engine.drain();
    for path in ["/", "/health", "/ping"] {
        let answer = world.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (503, "healthcheck"), "{path}");
    }
}

#[tokio::test]
async fn a_request_that_is_cut_off_is_told_so() {
    let world = World::new().await;
    world.handle.stall();
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 5}}).to_string();
    let stream = world.open(post("/generate_stream", body)).await;
    assert_eq!(world.engine.close().await, 1);
    let bytes = soon(http_body_util::BodyExt::collect(stream.into_body())).await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains("The server shut down before the answer was finished"), "{text}");
    assert!(text.contains(r#""error_type":"shutting_down""#), "{text}");
}
