//! What depends on real connections.

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::raw::{connect, read_until, request};
use crate::world::{World, soon};

#[tokio::test]
async fn a_client_that_leaves_mid_stream_frees_everything() {
    let world = World::new().await;
    let address = world.listen().await;
    let mut client = connect(address, request("/generate_stream", 100)).await;
    read_until(&mut client, "data: ").await;
    drop(client);
    world.wait_until_idle().await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_first_token_frees_everything() {
    let world = World::new().await;
    let address = world.listen().await;
    world.handle.stall();
    let mut client = connect(address, request("/generate_stream", 100)).await;
    read_until(&mut client, "\r\n\r\n").await;
    assert!(world.engine.snapshot().running > 0);
    drop(client);
    // The stalled step still holds its blocks: it is the end of the step that frees them.
    world.handle.resume();
    world.wait_until_idle().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_for_a_whole_answer_frees_everything() {
    let world = World::new().await;
    let address = world.listen().await;
    world.handle.stall();
    let client = connect(address, request("/generate", 100)).await;
    soon(async {
        while world.engine.snapshot().running == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(client);
    world.handle.resume();
    world.wait_until_idle().await;
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let world = World::new().await;
    let address = world.listen().await;
    let mut client = connect(address, request("/generate_stream", 3)).await;
    let first = read_until(&mut client, "\r\n0\r\n\r\n").await;
    assert!(first.contains("transfer-encoding: chunked"), "{first}");
    client.write_all(request("/generate", 3).as_bytes()).await.unwrap();
    let second = read_until(&mut client, &world.expected("Hello", 3)).await;
    assert!(second.starts_with("HTTP/1.1 200"), "{second}");
}

#[tokio::test]
async fn a_client_that_sends_too_much_reads_413() {
    let world = World::new().await;
    let address = world.listen().await;
    let head =
        "POST /generate HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: 2100000\r\n\r\n";
    let mut client = connect(address, head).await;
    client.write_all(&vec![b' '; 2_100_000]).await.unwrap();
    let answer = read_until(&mut client, "payload_too_large").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn headers_without_end_are_cut_off() {
    let world = World::new().await;
    let address = world.listen().await;
    let head = format!("GET /health HTTP/1.1\r\nhost: test\r\nx-a: {}\r\n", "a".repeat(70_000));
    let mut client = connect(address, head).await;
    let answer = read_until(&mut client, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn a_long_text_holds_no_stream_up() {
    let world = World::new().await;
    let address = world.listen().await;
    // As many tokenizations of long texts as there are workers, and more.
    let body = json!({"inputs": "word ".repeat(50_000)}).to_string();
    let tokenize = format!(
        "POST /tokenize HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut long = Vec::new();
    for _ in 0..4 {
        long.push(connect(address, &tokenize).await);
    }
    let mut client = connect(address, request("/generate_stream", 20)).await;
    let answer = read_until(&mut client, "\r\n0\r\n\r\n").await;
    assert_eq!(answer.matches("data: ").count(), 20);
}

#[tokio::test]
async fn serving_ends_when_told_to_and_finishes_the_answer_under_way() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(headrace_http::serve(listener, world.router.clone(), async { drop(stopped.await) }));
    world.handle.stall();
    let mut client = connect(address, request("/generate_stream", 5)).await;
    read_until(&mut client, "\r\n\r\n").await;
    let idle = connect(address, "").await;
    stop.send(()).unwrap();
    world.handle.resume();
    let answer = read_until(&mut client, "\r\n0\r\n\r\n").await;
    assert_eq!(answer.matches("data: ").count(), 5);
    soon(serving).await.unwrap().unwrap();
    drop(idle);
    assert!(TcpStream::connect(address).await.is_err());
}
