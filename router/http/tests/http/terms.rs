//! Tenant, priority, deadline and cached prefixes: what clients and gateways may say, and what it does.

use axum::body::Body;
use axum::http::Request;
use headrace_scheduler::PolicyKind;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::world::{Answer, Setup, World, post, soon};

/// A world of one row: whoever is not first waits.
async fn one_row(policy: PolicyKind, max_concurrent_requests: u32) -> World {
    let mut setup = Setup { policy, max_batch_size: 1, ..Setup::default() };
    setup.limits.max_concurrent_requests = max_concurrent_requests;
    setup.limits.fair_tenants = policy == PolicyKind::Fair;
    World::with(setup).await
}

fn ask(inputs: &str) -> Value {
    json!({"inputs": inputs, "parameters": {"max_new_tokens": 3}})
}

fn ask_with(path: &str, header: (&str, &str), body: &Value) -> Request<Body> {
    let mut request = post(path, body.to_string());
    request.headers_mut().insert(header.0.parse::<axum::http::HeaderName>().unwrap(), header.1.parse().unwrap());
    request
}

fn assert_overloaded(answer: &Answer) {
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (429, "overloaded"), "{}", answer.text);
    assert!(answer.error().starts_with("Model is overloaded"), "{}", answer.error());
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
}

#[tokio::test]
async fn a_bad_header_is_422_and_named_on_every_route() {
    let world = World::new().await;
    for header in [("x-tenant-id", "a\tb"), ("x-priority", "101"), ("x-deadline-ms", "0")] {
        for path in ["/", "/generate", "/generate_stream"] {
            let answer = world.send(ask_with(path, header, &ask("x"))).await;
            assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "validation"), "{path}");
            assert!(answer.error().contains(&format!("`{}`", header.0)), "{}", answer.error());
        }
    }
}

#[tokio::test]
async fn every_term_is_taken_from_headers_and_body() {
    let world = World::new().await;
    let body = json!({"inputs": "x", "parameters": {
        "max_new_tokens": 2, "priority": -100, "deadline_ms": 60000, "cache_salt": "mine",
    }});
    let mut request = ask_with("/generate", ("x-tenant-id", "team-a"), &body);
    request.headers_mut().insert("x-priority", "100".parse().unwrap());
    request.headers_mut().insert("x-deadline-ms", "60000".parse().unwrap());
    assert_eq!(world.send(request).await.status, 200);
}

#[tokio::test]
async fn the_more_urgent_of_two_that_wait_is_first() {
    let world = one_row(PolicyKind::Priority, 8).await;
    world.handle.stall();
    let _running = world.open(post("/generate_stream", ask("first").to_string())).await;
    let (done, mut order) = mpsc::channel(2);
    for (name, priority) in [("patient", "-5"), ("urgent", "5")] {
        let waiting = world.open(ask_with("/generate_stream", ("x-priority", priority), &ask(name))).await;
        let done = done.clone();
        tokio::spawn(async move {
            waiting.into_body().collect().await.unwrap();
            done.send(name).await.unwrap();
        });
    }
    world.handle.resume();
    assert_eq!(soon(order.recv()).await, Some("urgent"));
    assert_eq!(soon(order.recv()).await, Some("patient"));
}

#[tokio::test]
async fn a_request_that_waits_past_its_deadline_is_429() {
    let world = one_row(PolicyKind::Fcfs, 8).await;
    world.handle.stall();
    let _running = world.open(post("/generate_stream", ask("first").to_string())).await;
    assert_overloaded(&soon(world.send(ask_with("/generate", ("x-deadline-ms", "40"), &ask("late")))).await);
    let body = json!({"inputs": "late", "parameters": {"deadline_ms": 40}});
    // The body holds against the header.
    assert_overloaded(&soon(world.send(ask_with("/generate", ("x-deadline-ms", "4000000"), &body))).await);
    let streamed = soon(world.post("/generate_stream", body)).await;
    assert_eq!(streamed.status, 200);
    assert_eq!(streamed.events()[0]["error_type"], "overloaded");
}

#[tokio::test]
async fn every_refusal_by_load_says_when_to_come_again() {
    let world = one_row(PolicyKind::Fcfs, 1).await;
    world.handle.stall();
    let _running = world.open(post("/generate_stream", ask("first").to_string())).await;
    assert_overloaded(&world.post("/generate", ask("second")).await);
    let streamed = world.post("/generate_stream", ask("second")).await;
    assert_eq!(streamed.status, 200);
    assert!(streamed.header("retry-after").parse::<u64>().unwrap() >= 1);
}

#[tokio::test]
async fn under_fair_a_tenant_below_its_share_is_taken_and_the_newest_of_the_flood_is_429() {
    let world = one_row(PolicyKind::Fair, 4).await;
    world.handle.stall();
    let of = |tenant: &str, path: &str, inputs: &str| ask_with(path, ("x-tenant-id", tenant), &ask(inputs));
    let mut flood = Vec::new();
    for n in 0..3 {
        flood.push(world.open(of("a", "/generate_stream", &format!("flood {n}"))).await);
    }
    let newest = {
        let (router, request) = (world.router.clone(), of("a", "/generate", "newest"));
        tokio::spawn(tower::ServiceExt::oneshot(router, request))
    };
    soon(async {
        while world.engine.snapshot().running + world.engine.snapshot().waiting < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_overloaded(&world.send(of("a", "/generate", "too many")).await);
    let small = world.open(of("b", "/generate_stream", "small")).await;

    let displaced = soon(newest).await.unwrap().unwrap();
    assert_eq!(displaced.status(), 429);
    assert!(displaced.headers().contains_key("retry-after"));
    world.handle.resume();
    let small = soon(small.into_body().collect()).await.unwrap().to_bytes();
    assert!(String::from_utf8(small.to_vec()).unwrap().contains(&world.expected("small", 3)));
    for (n, answer) in flood.into_iter().enumerate() {
        let answer = soon(answer.into_body().collect()).await.unwrap().to_bytes();
        assert!(String::from_utf8(answer.to_vec()).unwrap().contains(&world.expected(&format!("flood {n}"), 3)));
    }
    world.wait_until_idle().await;
}

#[tokio::test]
async fn cached_tokens_are_a_header_and_a_salt_keeps_them_apart() {
    let world = World::new().await;
    let prompt = "A prompt that is longer than two blocks of thirty-two tokens, so both are cached.";
    let cached = async |parameters: Value| {
        let answer = world.post("/generate", json!({"inputs": prompt, "parameters": parameters})).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.header("x-cached-tokens").parse::<u32>().unwrap()
    };
    assert_eq!(cached(json!({"max_new_tokens": 2})).await, 0);
    let shared = cached(json!({"max_new_tokens": 2})).await;
    assert!(shared >= 64 && shared.is_multiple_of(32), "{shared}");
    assert_eq!(cached(json!({"max_new_tokens": 2, "cache_salt": "a"})).await, 0);
    assert_eq!(cached(json!({"max_new_tokens": 2, "cache_salt": "b"})).await, 0);
    assert_eq!(cached(json!({"max_new_tokens": 2, "cache_salt": "a"})).await, shared);
    // Log-probabilities of the prompt need every position computed.
    assert_eq!(cached(json!({"max_new_tokens": 2, "decoder_input_details": true})).await, 0);
}

#[tokio::test]
async fn a_salt_has_1_to_64_bytes() {
    let world = World::new().await;
    for salt in [String::new(), "s".repeat(65)] {
        let body = json!({"inputs": "x", "parameters": {"cache_salt": salt}});
        let answer = world.post("/generate", body).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "validation"));
        assert!(answer.error().contains("`cache_salt`") && answer.error().contains("1 to 64"), "{}", answer.error());
    }
}

#[tokio::test]
async fn metrics_tell_policy_cache_and_refusals_and_no_tenant() {
    let world = one_row(PolicyKind::Fcfs, 1).await;
    world.handle.stall();
    let _running = world.open(ask_with("/generate_stream", ("x-tenant-id", "secret-name"), &ask("x"))).await;
    assert_overloaded(&world.post("/generate", ask("x")).await);
    let shown = world.get("/metrics").await.text;
    for line in [
        "headrace_scheduling_policy_info{policy=\"fcfs\"} 1",
        "# TYPE headrace_prefix_lookup_tokens_total counter",
        "# TYPE headrace_prefix_hit_tokens_total counter",
        "# TYPE headrace_prefix_evicted_blocks_total counter",
        "# TYPE headrace_deadlines_missed_total counter",
        "# TYPE headrace_queue_tokens gauge",
        "# TYPE headrace_predicted_drain_seconds gauge",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "no {line:?} in\n{shown}");
    }
    for part in ["headrace_kv_blocks{state=\"cached\"}", "headrace_rejections_total{cause=\"requests\"}"] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    assert!(!shown.contains("secret-name"));
}
