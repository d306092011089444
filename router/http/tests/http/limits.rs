//! Too many requests, a server that shuts down, a shard that fails.

use serde_json::{Value, json};

use crate::world::{Setup, World, post, soon};

fn ask(tokens: u32) -> Value {
    json!({"inputs": "Hello", "parameters": {"max_new_tokens": tokens}})
}

async fn world_of(max_concurrent_requests: u32) -> World {
    let mut setup = Setup::default();
    setup.limits.max_concurrent_requests = max_concurrent_requests;
    World::with(setup).await
}

#[tokio::test]
async fn one_request_too_many_is_429_and_the_place_comes_back() {
    let world = world_of(1).await;
    world.handle.stall();
    let running = world.open(post("/generate_stream", ask(2).to_string())).await;
    let refused = world.post("/generate", ask(2)).await;
    assert_eq!((refused.status.as_u16(), refused.error_type().as_str()), (429, "overloaded"));
    assert!(refused.error().starts_with("Model is overloaded"), "{}", refused.error());
    assert!(refused.error().contains("--max-concurrent-requests"), "{}", refused.error());
    world.handle.resume();
    drop(running);
    world.wait_until_idle().await;
    assert_eq!(world.post("/generate", ask(2)).await.status, 200);
}

#[tokio::test]
async fn overload_comes_before_validation_and_after_the_range_of_best_of() {
    let world = world_of(1).await;
    world.handle.stall();
    let _running = world.open(post("/generate_stream", ask(2).to_string())).await;
    let invalid = json!({"inputs": "", "parameters": {"temperature": 0}});
    assert_eq!(world.post("/generate", invalid).await.status, 429);
    let best_of = json!({"inputs": "x", "parameters": {"best_of": 9}});
    assert_eq!(world.post("/generate", best_of).await.status, 422);
}

#[tokio::test]
async fn overload_of_a_stream_is_an_event() {
    let world = world_of(1).await;
    world.handle.stall();
    let _running = world.open(post("/generate_stream", ask(2).to_string())).await;
    let refused = world.post("/generate_stream", ask(2)).await;
    assert_eq!(refused.status, 200);
    assert_eq!(refused.events()[0]["error_type"], "overloaded");
}

#[tokio::test]
async fn each_choice_of_best_of_takes_a_place() {
    let world = world_of(2).await;
    let body = json!({"inputs": "x", "parameters": {"best_of": 2, "do_sample": true, "max_new_tokens": 1}});
    assert_eq!(world.post("/generate", body.clone()).await.status, 200);
    world.handle.stall();
    let running = world.open(post("/generate_stream", ask(3).to_string())).await;
    assert_eq!(world.post("/generate", body).await.status, 429);
    drop(running);
}

#[tokio::test]
async fn a_refused_request_gives_its_place_back() {
    let world = world_of(1).await;
    for _ in 0..3 {
        assert_eq!(world.post("/generate", json!({"inputs": ""})).await.status, 422);
    }
    assert_eq!(world.post("/generate", ask(1)).await.status, 200);
}

#[tokio::test]
async fn a_server_that_drains_refuses_with_503_and_finishes_what_runs() {
    let world = World::new().await;
    world.handle.stall();
    let running = world.open(post("/generate_stream", ask(3).to_string())).await;
    world.engine.drain();
    for path in ["/generate", "/generate_stream", "/"] {
        let refused = world.post(path, ask(1)).await;
        assert_eq!((refused.status.as_u16(), refused.error_type().as_str()), (503, "shutting_down"), "{path}");
    }
    world.handle.resume();
    let bytes = soon(http_body_util::BodyExt::collect(running.into_body())).await.unwrap().to_bytes();
    assert!(String::from_utf8(bytes.to_vec()).unwrap().contains(&world.expected("Hello", 3)));
}

#[tokio::test]
async fn a_failed_step_is_424() {
    let world = World::new().await;
    world.handle.fail_next_step();
    let answer = world.post("/generate", ask(3)).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (424, "generation"));
    assert!(answer.error().starts_with("Request failed during generation: "), "{}", answer.error());
    assert_eq!(world.post("/generate", ask(3)).await.status, 200);
}

#[tokio::test]
async fn a_dead_shard_is_424_and_unhealthy() {
    let world = World::new().await;
    world.handle.die();
    let answer = world.post("/generate", ask(3)).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (424, "generation"));
    let health = world.get("/health").await;
    assert_eq!((health.status.as_u16(), health.error_type().as_str()), (503, "healthcheck"));
    assert!(health.error().starts_with("unhealthy"), "{}", health.error());
}
