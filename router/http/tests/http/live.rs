//! The live view: its page, and the stream of samples behind it.

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use headrace_http::{ApiKeys, Surface};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::world::{Setup, World, soon};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

fn get(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).unwrap()
}

async fn sample(response: &mut Response) -> Value {
    let frame = soon(response.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap();
    let text = std::str::from_utf8(&frame).unwrap();
    serde_json::from_str(text.strip_prefix("data: ").unwrap()).unwrap()
}

#[tokio::test]
async fn browsers_get_a_page_where_everybody_else_gets_the_servers_health() {
    let world = World::new().await;
    let page = world.send(get("/", &[("accept", BROWSER)])).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.text.starts_with("<!doctype html>") && page.header("content-security-policy").contains("'none'"));
    let health = world.send(get("/", &[("accept", "*/*")])).await;
    assert_eq!((health.status.as_u16(), health.text.as_str()), (200, ""));
}

#[tokio::test]
async fn a_viewer_sees_at_once_how_busy_the_server_is() {
    let world = World::new().await;
    world.post("/generate", json!({"inputs": "hello", "parameters": {"max_new_tokens": 3}})).await;
    world.wait_until_idle().await;
    let mut live = world.open(get("/live", &[])).await;
    assert_eq!(live.headers()["content-type"], "text/event-stream");
    let seen = sample(&mut live).await;
    for (field, value) in [("state", json!("serving")), ("running", json!(0)), ("waiting", json!(0))] {
        assert_eq!(seen[field], value, "{seen}");
    }
    assert_eq!((&seen["prompt_tokens"], &seen["generated_tokens"]), (&json!(5), &json!(3)));
}

#[tokio::test]
async fn no_more_than_so_many_viewers_have_a_place_and_one_that_leaves_makes_room() {
    let world = World::new().await;
    let mut viewers = Vec::new();
    for _ in 0..32 {
        let viewer = world.open(get("/live", &[])).await;
        assert_eq!(viewer.status(), 200);
        viewers.push(viewer);
    }
    let refused = world.open(get("/live", &[])).await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "5"));
    viewers.pop();
    assert_eq!(world.open(get("/live", &[])).await.status(), 200);
}

#[tokio::test]
async fn the_stream_ends_with_the_server() {
    let world = World::new().await;
    world.engine.drain();
    let live = world.send(get("/live", &[])).await;
    assert!(live.text.contains("draining") && live.text.matches("data: ").count() == 1, "{}", live.text);
}

#[tokio::test]
async fn with_keys_the_page_is_open_and_the_samples_are_not() {
    let surface = Surface { api_keys: ApiKeys::new(["secret"]), ..Surface::default() };
    let world = World::with(Setup { surface, ..Setup::default() }).await;
    assert_eq!(world.open(get("/", &[("accept", BROWSER)])).await.status(), 200);
    assert_eq!(world.open(get("/live", &[])).await.status(), 401);
    assert_eq!(world.open(get("/live", &[("authorization", "Bearer secret")])).await.status(), 200);
}
