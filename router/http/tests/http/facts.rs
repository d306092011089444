//! What the server says of itself, and of a text.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::openai::chat_world;
use crate::tokenizer::{END, ids};
use crate::world::{Setup, World, post, soon};

#[tokio::test]
async fn health_is_200_with_nothing_on_all_its_routes() {
    let world = World::new().await;
    for path in ["/", "/health", "/ping"] {
        let answer = world.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ""), "{path}");
        assert!(!answer.headers.contains_key("content-type"), "{path}");
    }
}

#[tokio::test]
async fn info_has_the_fields_of_tgi_3_and_2() {
    let info = World::new().await.get("/info").await.json();
    let expected = json!({
        "model_id": "org/model", "model_sha": null, "model_dtype": "float32", "model_device_type": "cpu",
        "model_pipeline_tag": null, "max_concurrent_requests": 8, "max_best_of": 2, "max_stop_sequences": 4,
        "max_input_tokens": 100, "max_total_tokens": 128, "scheduling_policy": "fcfs", "waiting_served_ratio": 0.3f32,
        "max_batch_total_tokens": 4096, "max_waiting_tokens": 20, "max_batch_size": 8, "validation_workers": 2,
        "max_client_batch_size": 4, "router": "headrace", "version": "0.0.0", "sha": null, "docker_label": null,
    });
    for (field, value) in expected.as_object().unwrap() {
        let same = info[field] == *value
            || info[field].as_f64().map(|number| number as f32) == value.as_f64().map(|v| v as f32);
        assert!(same && info.get(field).is_some(), "{field}: {} instead of {value}", info[field]);
    }
}

#[tokio::test]
async fn metrics_have_tgis_names_after_one_request() {
    let world = World::new().await;
    world.post("/generate", json!({"inputs": "x", "parameters": {"max_new_tokens": 2}})).await;
    world.post("/generate", json!({"inputs": ""})).await;
    let answer = world.get("/metrics").await;
    assert!(answer.header("content-type").starts_with("text/plain"));
    for (name, kind) in [
        ("tgi_request_count", "counter"),
        ("tgi_request_success", "counter"),
        ("tgi_request_failure", "counter"),
        ("tgi_request_duration", "histogram"),
        ("tgi_request_validation_duration", "histogram"),
        ("tgi_request_queue_duration", "histogram"),
        ("tgi_request_inference_duration", "histogram"),
        ("tgi_request_mean_time_per_token_duration", "histogram"),
        ("tgi_request_input_length", "histogram"),
        ("tgi_request_max_new_tokens", "histogram"),
        ("tgi_request_generated_tokens", "histogram"),
        ("tgi_request_skipped_tokens", "summary"),
        ("tgi_queue_size", "gauge"),
        ("tgi_batch_current_size", "gauge"),
        ("tgi_batch_current_max_tokens", "gauge"),
        ("tgi_batch_concat", "counter"),
        ("tgi_batch_filter_duration", "histogram"),
        ("headrace_time_to_first_token_seconds", "histogram"),
        ("headrace_inter_token_latency_seconds", "histogram"),
        ("headrace_request_duration_seconds", "histogram"),
        ("headrace_step_overhead_seconds", "histogram"),
        ("tgi_batch_next_size", "histogram"),
        ("tgi_batch_inference_count", "counter"),
        ("tgi_batch_inference_success", "counter"),
        ("tgi_batch_inference_duration", "histogram"),
        ("tgi_batch_forward_duration", "histogram"),
        ("tgi_batch_decode_duration", "histogram"),
        ("headrace_step_rows", "histogram"),
        ("headrace_step_duration_seconds", "histogram"),
    ] {
        let line = format!("# TYPE {name} {kind}");
        assert!(answer.text.lines().any(|shown| shown == line), "no {line:?} in\n{}", answer.text);
    }
    assert!(answer.text.contains("tgi_request_failure{err=\"validation\"}"));
}

#[tokio::test]
async fn tokens_of_a_text_come_with_their_bytes() {
    let world = World::new().await;
    let answer = world.post("/tokenize", json!({"inputs": "a<|end|>b"})).await;
    assert_eq!(answer.header("content-type"), "application/json");
    let expected = json!([
        {"id": ids("a")[0], "text": "a", "start": 0, "stop": 1},
        {"id": END, "text": "<|end|>", "start": 1, "stop": 8},
        {"id": ids("b")[0], "text": "b", "start": 8, "stop": 9},
    ]);
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn tokens_that_share_a_character_all_show_it() {
    let answer = World::new().await.post("/tokenize", json!({"inputs": "é!"})).await.json();
    let shown: Vec<_> = answer.as_array().unwrap().iter().map(|token| token["text"].as_str().unwrap()).collect();
    assert_eq!(shown, ["é", "é", "!"]);
}

#[tokio::test]
async fn an_empty_text_has_no_tokens() {
    let answer = World::new().await.post("/tokenize", json!({"inputs": ""})).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, "[]"));
}

#[tokio::test]
async fn a_text_over_the_prompt_limit_is_tokenized_all_the_same() {
    let answer = World::new().await.post("/tokenize", json!({"inputs": "x".repeat(100_000)})).await;
    assert_eq!(answer.json().as_array().unwrap().len(), 100_000);
}

fn long_text() -> String {
    json!({"inputs": "7".repeat(100_000)}).to_string()
}

/// Digits have a token each, and a token fifty bytes of JSON.
#[tokio::test]
async fn the_tokens_of_a_long_text_come_in_pieces_and_are_never_there_as_a_whole() {
    let world = World::new().await;
    let response = world.open(post("/tokenize", long_text())).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    assert!(!response.headers().contains_key("content-length"));
    let mut body = response.into_body();
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let piece = frame.unwrap().into_data().unwrap();
        assert!(piece.len() < 300_000, "{}", piece.len());
        whole.extend_from_slice(&piece);
    }
    let tokens: Vec<Value> = serde_json::from_slice(&whole).unwrap();
    assert_eq!((tokens.len(), whole.len() > 4_000_000), (100_000, true));
    assert_eq!(tokens[99_999], json!({"id": ids("7")[0], "text": "7", "start": 99_999, "stop": 100_000}));
}

#[tokio::test]
async fn a_long_chat_comes_in_pieces_too() {
    let world = chat_world().await;
    let message = json!({"role": "user", "content": "é\"7".repeat(30_000)});
    let response = world.open(post("/chat_tokenize", json!({"messages": [message]}).to_string())).await;
    assert!(!response.headers().contains_key("content-length"));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let text = format!("[user]{}[assistant]", "é\"7".repeat(30_000));
    assert_eq!(answer["tokenize_response"].as_array().unwrap().len(), text.len());
    assert_eq!(answer["templated_text"], text);
}

#[tokio::test]
async fn eight_long_answers_are_under_way_at_most_and_the_others_wait() {
    let world = World::new().await;
    let mut untaken = Vec::new();
    for _ in 0..8 {
        untaken.push(world.open(post("/tokenize", long_text())).await);
    }
    let mut ninth = Box::pin(world.send(post("/tokenize", long_text())));
    // One thread reads long texts, in their order: after these, a ninth that did not wait would have its answer.
    let others = async {
        for _ in 0..40 {
            let body = json!({"inputs": "7".repeat(100_000), "parameters": {"truncate": 1, "max_new_tokens": 1}});
            assert_eq!(world.post("/generate", body).await.status, 200);
        }
    };
    tokio::select! {
        () = others => {}
        _ = &mut ninth => panic!("it did not wait"),
    }
    let short = world.post("/tokenize", json!({"inputs": "7"})).await;
    assert_eq!(short.status, 200, "{}", short.text);
    let generated = world.post("/generate", json!({"inputs": "x", "parameters": {"max_new_tokens": 1}})).await;
    assert_eq!(generated.status, 200, "{}", generated.text);
    // One client leaves, another takes its answer.
    drop(untaken.pop());
    assert_eq!(soon(&mut ninth).await.status, 200);
    untaken.pop().unwrap().into_body().collect().await.unwrap();
    assert_eq!(soon(world.send(post("/tokenize", long_text()))).await.status, 200);
}

#[tokio::test]
async fn browsers_may_call_from_anywhere() {
    let request = Request::options("/generate")
        .header("origin", "https://example.org")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type,authorization")
        .body(Body::empty())
        .unwrap();
    let answer = World::new().await.send(request).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
}

#[tokio::test]
async fn browsers_may_call_from_the_named_origins_alone() {
    let cors_origins = vec!["https://example.org".parse().unwrap()];
    let world = World::with(Setup { cors_origins, ..Setup::default() }).await;
    for (origin, allowed) in [("https://example.org", Some("https://example.org")), ("https://example.com", None)] {
        let request = Request::get("/info").header("origin", origin).body(Body::empty()).unwrap();
        let answer = world.send(request).await;
        let given = answer.headers.get("access-control-allow-origin").map(|value| value.to_str().unwrap());
        assert_eq!((answer.status.as_u16(), given), (200, allowed), "{origin}");
    }
}
