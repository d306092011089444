//! API keys: which routes ask for one, and what those without one read.

use axum::body::Body;
use axum::http::Request;
use headrace_http::{ApiKeys, Limits, Surface};
use headrace_scheduler::PolicyKind;
use serde_json::{Value, json};

use crate::world::{Answer, Setup, World, post};

const PROTECTED: [&str; 7] =
    ["/", "/generate", "/generate_stream", "/tokenize", "/chat_tokenize", "/invocations", "/vertex"];
const OPENAI: [&str; 2] = ["/v1/completions", "/v1/chat/completions"];
const OPEN: [&str; 10] = [
    "/",
    "/health",
    "/ping",
    "/livez",
    "/readyz",
    "/info",
    "/metrics",
    "/docs/",
    "/api-doc/openapi.json",
    "/v1/models",
];

async fn locked() -> World {
    let surface = Surface { api_keys: ApiKeys::new(["first", "second"]), ..Surface::default() };
    World::with(Setup { surface, ..Setup::default() }).await
}

async fn ask(world: &World, path: &str, authorization: &str) -> Answer {
    let mut request = post(path, body().to_string());
    if !authorization.is_empty() {
        request.headers_mut().insert("authorization", authorization.parse().unwrap());
    }
    world.send(request).await
}

/// A request for any of the protected routes.
fn body() -> Value {
    let messages = [json!({"role": "user", "content": "Hello"})];
    let parameters = json!({"max_new_tokens": 2});
    let instances = [json!({"inputs": "Hello", "parameters": parameters})];
    json!({
        "inputs": "Hello", "parameters": parameters, "messages": messages, "prompt": "Hello", "max_tokens": 2,
        "instances": instances,
    })
}

#[tokio::test]
async fn without_a_key_what_costs_something_is_401_and_says_how_to_send_one() {
    let world = locked().await;
    for path in PROTECTED {
        for authorization in ["", "Bearer wrong", "Basic first", "first"] {
            let answer = ask(&world, path, authorization).await;
            assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (401, "unauthorized"), "{path}");
            assert_eq!(answer.header("www-authenticate"), "Bearer", "{path}");
            assert_eq!(answer.header("content-type"), "application/json", "{path}");
            assert!(answer.error().contains("Authorization: Bearer"), "{}", answer.error());
            assert!(!answer.text.contains("wrong"), "{}", answer.text);
        }
    }
    assert_eq!(world.engine.snapshot().running, 0);
}

#[tokio::test]
async fn without_a_key_openais_routes_answer_as_openai_does() {
    let world = locked().await;
    for path in OPENAI {
        let answer = ask(&world, path, "Bearer wrong").await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (401, "unauthorized"), "{path}");
        assert_eq!(answer.header("www-authenticate"), "Bearer", "{path}");
        let error = answer.json()["error"].clone();
        assert_eq!((&error["code"], &error["type"]), (&json!("invalid_api_key"), &json!("authentication_error")));
    }
}

#[tokio::test]
async fn with_any_of_the_keys_all_routes_answer() {
    let world = locked().await;
    for path in PROTECTED.into_iter().chain(OPENAI) {
        for authorization in ["Bearer first", "bearer second"] {
            let answer = ask(&world, path, authorization).await;
            // A chat has no template in this world.
            let expected = if path.contains("chat") { 422 } else { 200 };
            assert_eq!(answer.status, expected, "{path}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn what_says_how_the_server_is_needs_no_key() {
    let world = locked().await;
    for path in OPEN {
        assert_eq!(world.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_wrong_method_or_path_is_no_question_of_keys() {
    let world = locked().await;
    assert_eq!(world.get("/generate").await.status, 405);
    assert_eq!(world.post("/nowhere", body()).await.status, 404);
}

#[tokio::test]
async fn without_keys_anybody_may_ask() {
    let answer = ask(&World::new().await, "/generate", "Bearer anything").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn a_browser_may_send_its_key_from_anywhere() {
    let request = Request::options("/generate")
        .header("origin", "https://example.org")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type")
        .body(Body::empty())
        .unwrap();
    let answer = locked().await.send(request).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    // A browser takes `*` for every header but this one.
    assert_eq!(answer.header("access-control-allow-headers"), "authorization,content-type");
}

#[tokio::test]
async fn a_key_is_the_tenant_of_requests_that_name_none() {
    let limits = Limits { max_concurrent_requests: 2, fair_tenants: true, ..Setup::default().limits };
    let surface = Surface { api_keys: ApiKeys::new(["first", "second"]), ..Surface::default() };
    let world = World::with(Setup { limits, surface, policy: PolicyKind::Fair, ..Setup::default() }).await;
    world.handle.stall();
    let mut running = Vec::new();
    for _ in 0..2 {
        let mut request = post("/generate_stream", body().to_string());
        request.headers_mut().insert("authorization", "Bearer first".parse().unwrap());
        running.push(world.open(request).await);
    }
    let wrong = |authorization: &'static str, tenant: Option<&'static str>| {
        let mut request = post("/generate", json!({"inputs": ""}).to_string());
        request.headers_mut().insert("authorization", authorization.parse().unwrap());
        if let Some(tenant) = tenant {
            request.headers_mut().insert("x-tenant-id", tenant.parse().unwrap());
        }
        world.send(request)
    };
    // The first key's tenant has all places; another tenant gets one, and is told what is wrong with its request.
    assert_eq!(wrong("Bearer first", None).await.status, 429);
    assert_eq!(wrong("Bearer second", None).await.status, 422);
    assert_eq!(wrong("Bearer first", Some("other")).await.status, 422);
    assert_eq!(wrong("Bearer second", Some("key-1")).await.status, 429);
}
