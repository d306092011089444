//! What HTTP/1 allows on a connection.

use tokio::io::AsyncWriteExt;

use crate::raw::{connect, read_until, request};
use crate::world::World;

/// All that comes until the server closes the connection.
const THE_END: &str = "\0";

#[tokio::test]
async fn http_1_0_is_answered_and_the_connection_closed() {
    let world = World::new().await;
    let asked = request("/generate", 3).replace("HTTP/1.1", "HTTP/1.0");
    let answer = read_until(&mut connect(world.listen().await, asked).await, THE_END).await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert!(answer.ends_with('}') && !answer.contains("transfer-encoding"), "{answer}");
}

#[tokio::test]
async fn a_stream_over_http_1_0_has_no_chunks_and_ends_with_the_connection() {
    let world = World::new().await;
    let asked = request("/generate_stream", 3).replace("HTTP/1.1", "HTTP/1.0");
    let answer = read_until(&mut connect(world.listen().await, asked).await, THE_END).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("transfer-encoding"), "{head}");
    assert!(body.starts_with("data: ") && body.ends_with("\n\n"), "{body}");
    assert_eq!(body.matches("data: ").count(), 3);
}

#[tokio::test]
async fn requests_that_come_together_are_answered_one_after_the_other() {
    let world = World::new().await;
    let info = "GET /info HTTP/1.1\r\nhost: test\r\n\r\n";
    let close = "GET /nowhere HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let asked = [&request("/generate", 3), info, &request("/generate_stream", 2), close].concat();
    let answer = read_until(&mut connect(world.listen().await, asked).await, THE_END).await;
    let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "200", "200", "404"], "{answer}");
    let place = |what: &str| answer.find(what).unwrap_or_else(|| panic!("no {what} in {answer}"));
    assert!(place("generated_text") < place("model_id") && place("model_id") < place("data: "));
}

#[tokio::test]
async fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let world = World::new().await;
    let asked = request("/generate", 3);
    let (head, body) = asked.split_once("\r\n\r\n").unwrap();
    let mut client = connect(world.listen().await, format!("{head}\r\nexpect: 100-continue\r\n\r\n")).await;
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 100"));
    client.write_all(body.as_bytes()).await.unwrap();
    assert!(read_until(&mut client, "}").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn what_would_be_refused_anyway_is_not_asked_for() {
    let world = World::new().await;
    let address = world.listen().await;
    for (head, status) in [
        ("POST /generate HTTP/1.1\r\ncontent-type: text/plain", "415"),
        ("POST /generate HTTP/1.1\r\ncontent-type: application/json\r\ncontent-encoding: zstd", "415"),
        ("POST /nowhere HTTP/1.1", "404"),
        ("PUT /generate HTTP/1.1", "405"),
    ] {
        let asked = format!("{head}\r\nhost: test\r\ncontent-length: 10\r\nexpect: 100-continue\r\n\r\n");
        let answer = read_until(&mut connect(address, asked).await, "\r\n\r\n").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {answer}");
    }
}

#[tokio::test]
async fn two_lengths_that_differ_are_400_and_the_end() {
    let world = World::new().await;
    let asked = request("/generate", 3).replacen("content-length", "content-length: 3\r\ncontent-length", 1);
    let answer = read_until(&mut connect(world.listen().await, asked).await, THE_END).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[tokio::test]
async fn two_content_types_are_415() {
    let world = World::new().await;
    let asked = request("/generate", 3).replacen("content-type", "content-type: text/plain\r\ncontent-type", 1);
    let answer = read_until(&mut connect(world.listen().await, asked).await, "more than one").await;
    assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
}

#[tokio::test]
async fn a_whole_url_in_the_request_line_is_its_path() {
    let world = World::new().await;
    let asked = "GET http://test/health HTTP/1.1\r\nhost: test\r\n\r\n";
    let answer = read_until(&mut connect(world.listen().await, asked).await, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn what_is_no_http_is_400_and_the_end() {
    let world = World::new().await;
    let answer = read_until(&mut connect(world.listen().await, "hello\r\n\r\n").await, THE_END).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}
