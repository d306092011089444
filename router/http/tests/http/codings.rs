//! Compressed bodies: decoded within the limit of any body, or refused.

use std::io::Write;

use axum::body::Body;
use axum::http::Request;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::world::{Answer, World};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn body() -> Vec<u8> {
    json!({"inputs": "Hello", "parameters": {"max_new_tokens": 2}}).to_string().into_bytes()
}

/// [`body`] with a further field and a thousand spaces, as the reference encoder writes it.
const BROTLI: &[u8] = b"\x1bk\x04\x00,\x8a\x07\x00\x00\x00\xf8\xe1\x8a\x8a\x95b\xc5\x1e\x8e\x95\x222{\xdd\xe6v\x87'uX\xfa\x1aD\xe4kn\x85\x95\xe9\xe4\x80\xfdz\xfcv\xb0(\x910h\x9ey\x02\x9c\xdb\xd8x\x22\x22\x95\xd4\x98i\x85\xf9\xf0\xdf\x8a\x15;\xde1<\xb7\xb3\xc3\x8eN/\x17\xee`L\x96\xd9]\xcc\x87\x1e\x01";

async fn send(world: &World, codings: &[&str], body: impl Into<Body>) -> Answer {
    let mut request = Request::post("/generate").header("content-type", "application/json");
    for coding in codings {
        request = request.header("content-encoding", *coding);
    }
    world.send(request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn gzip_and_brotli_are_read() {
    let world = World::new().await;
    for (coding, body) in [
        ("gzip", gzip(&body())),
        ("GZIP", gzip(&body())),
        ("x-gzip", gzip(&body())),
        ("br", BROTLI.to_vec()),
        ("identity", body()),
    ] {
        let answer = send(&world, &[coding], body).await;
        assert_eq!(answer.status, 200, "{coding}: {}", answer.text);
        assert_eq!(answer.json()["generated_text"], world.expected("Hello", 2), "{coding}");
    }
}

#[tokio::test]
async fn other_codings_are_415_and_the_answer_says_which_are_read() {
    let world = World::new().await;
    for codings in [&["deflate"][..], &["zstd"], &["gzip, br"], &["gzip", "gzip"], &["nonsense"]] {
        let answer = send(&world, codings, body()).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (415, "unsupported_media_type"));
        assert_eq!(answer.header("accept-encoding"), "gzip, br");
        assert!(answer.error().contains("gzip, br"), "{}", answer.error());
    }
}

#[tokio::test]
async fn a_body_that_is_not_what_it_says_is_400() {
    let world = World::new().await;
    let mut cut = gzip(&body());
    cut.truncate(cut.len() - 4);
    let mut changed = gzip(&body());
    let last = changed.len() - 1;
    changed[last] ^= 1;
    for (coding, body) in [("gzip", body()), ("gzip", cut), ("gzip", changed), ("br", body()), ("gzip", vec![])] {
        let answer = send(&world, &[coding], body).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (400, "bad_request"), "{}", answer.text);
    }
}

#[tokio::test]
async fn what_becomes_too_large_is_413_however_small_it_comes() {
    let world = World::new().await;
    let bomb = gzip(&vec![b' '; 10_000_000]);
    assert!(bomb.len() < 20_000);
    let answer = send(&world, &["gzip"], bomb).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (413, "payload_too_large"));
    assert!(answer.error().contains("300000"), "{}", answer.error());
}

#[tokio::test]
async fn what_becomes_long_within_the_limit_is_read() {
    let world = World::new().await;
    let long = [body(), vec![b' '; 250_000]].concat();
    assert_eq!(send(&world, &["gzip"], gzip(&long)).await.status, 200);
}
