//! What an orchestrator asks.

use axum::body::Body;
use axum::http::Request;
use futures::FutureExt;
use headrace_http::{Front, Router};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::world::{World, post, soon};

#[tokio::test]
async fn a_server_that_serves_is_alive_and_ready() {
    let world = World::new().await;
    for path in ["/livez", "/readyz"] {
        let answer = world.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ""), "{path}");
    }
}

#[tokio::test]
async fn a_server_that_drains_is_alive_and_not_ready() {
    let world = World::new().await;
    world.engine.drain();
    assert_eq!(world.get("/livez").await.status, 200);
    let answer = world.get("/readyz").await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (503, "healthcheck"));
    assert!(answer.error().contains("shutting down"), "{}", answer.error());
}

#[tokio::test]
async fn an_engine_that_ended_is_neither_alive_nor_ready() {
    let world = World::new().await;
    world.handle.die();
    soon(async {
        while world.get("/readyz").await.status == 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon(async {
        while world.get("/livez").await.status == 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(world.get("/livez").await.error().starts_with("unhealthy: "));
}

#[tokio::test]
async fn neither_waits_for_a_step_that_takes_for_ever() {
    let world = World::new().await;
    world.handle.stall();
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 5}}).to_string();
    let _running = world.open(post("/generate_stream", body)).await;
    for path in ["/livez", "/readyz"] {
        assert_eq!(world.get(path).await.status, 200, "{path}");
    }
    world.handle.resume();
}

/// Asked once and at once: whoever waits for something, and be it a lock of a task, is not done then.
#[tokio::test]
async fn both_are_answered_without_a_wait_while_the_engine_and_its_shard_stand_still() {
    let world = World::new().await;
    world.handle.stall();
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 5}}).to_string();
    let _running = world.open(post("/generate_stream", body)).await;
    // Nobody else has a turn of this thread until the end.
    for path in ["/livez", "/readyz"] {
        let answer = world.get(path).now_or_never().unwrap_or_else(|| panic!("{path} waits for something"));
        assert_eq!(answer.status, 200, "{path}");
    }
    assert!(world.get("/health").now_or_never().is_none(), "it asks the engine");
    world.handle.resume();
}

async fn ask(router: &Router, method: &str, path: &str) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).body(Body::from("{}")).unwrap();
    let answer = router.clone().oneshot(request).await.unwrap();
    assert!(answer.headers().contains_key("x-request-id"), "{path}");
    let status = answer.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test]
async fn before_the_model_is_loaded_the_server_is_alive_and_says_what_it_is_doing() {
    let front = Front::new("reading the model");
    let router = front.router();
    assert_eq!(ask(&router, "GET", "/livez").await.0, 200);
    front.doing("loading weights");
    for path in ["/readyz", "/health", "/ping", "/"] {
        let (status, body) = ask(&router, "GET", path).await;
        assert_eq!((status, &body["error_type"]), (503, &json!("healthcheck")), "{path}");
        assert!(body["error"].as_str().unwrap().contains("loading weights"), "{path}: {body}");
    }
    for (method, path) in [
        ("POST", "/generate"),
        ("POST", "/"),
        ("GET", "/generate"),
        ("POST", "/health"),
        ("GET", "/info"),
        ("GET", "/nowhere"),
    ] {
        let (status, body) = ask(&router, method, path).await;
        assert_eq!((status, &body["error_type"]), (503, &json!("loading")), "{path}");
        assert!(body["error"].as_str().unwrap().contains("loading weights"), "{path}: {body}");
    }
}

#[tokio::test]
async fn before_the_model_is_loaded_openais_routes_have_their_own_shape() {
    let (status, body) = ask(&Front::new("loading weights").router(), "POST", "/v1/completions").await;
    assert_eq!((status, &body["error_type"]), (503, &json!("loading")));
    assert!(body["error"]["message"].as_str().unwrap().contains("loading weights"), "{body}");
}

#[tokio::test]
async fn once_it_is_loaded_its_own_routes_answer() {
    let world = World::new().await;
    let front = Front::new("reading the model");
    let router = front.router();
    front.open(world.router.clone());
    assert_eq!(ask(&router, "GET", "/readyz").await.0, 200);
    assert_eq!(ask(&router, "GET", "/info").await.1["model_id"], "org/model");
    assert_eq!(ask(&router, "GET", "/nowhere").await.0, 404);
}
