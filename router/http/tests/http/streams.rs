//! Streamed answers: bytes, events, errors.

use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::tokenizer::{LINE_SEPARATOR, ids};
use crate::world::{Answer, Setup, World, post, shown, soon};

async fn stream(world: &World, parameters: Value) -> Answer {
    let answer = world.post("/generate_stream", json!({"inputs": "Hello", "parameters": parameters})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), "text/event-stream");
    answer
}

#[tokio::test]
async fn a_stream_is_these_bytes() {
    let world = World::new().await;
    let answer = stream(&world, json!({"max_new_tokens": 2})).await;
    let tokens = world.shard.expected_tokens(&ids("Hello"), 2);
    let logprobs = world.shard.expected_logprobs(&ids("Hello"), 2);
    let text = world.expected("Hello", 2);
    let token = |i: usize| {
        let (id, text, logprob) = (tokens[i], &text[i..=i], shown(logprobs[i]));
        format!(r#""token":{{"id":{id},"text":"{text}","logprob":{logprob},"special":false}}"#)
    };
    let expected = format!(
        "data: {{\"index\":1,{},\"generated_text\":null,\"details\":null}}\n\n\
         data: {{\"index\":2,{},\"generated_text\":\"{text}\",\"details\":null}}\n\n",
        token(0),
        token(1),
    );
    assert_eq!(answer.text, expected);
}

#[tokio::test]
async fn stream_headers_are_tgis_and_hold_no_times() {
    let answer = stream(&World::new().await, json!({"max_new_tokens": 1})).await;
    assert_eq!(answer.header("cache-control"), "no-cache");
    assert_eq!(answer.header("x-accel-buffering"), "no");
    assert_eq!(answer.header("x-compute-type"), "cpu");
    assert_eq!(answer.header("x-compute-characters"), "5");
    assert!(!answer.headers.contains_key("x-total-time"));
}

#[tokio::test]
async fn one_token_is_one_event_with_the_whole_text() {
    let world = World::new().await;
    let events = stream(&world, json!({"max_new_tokens": 1})).await.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["generated_text"], world.expected("Hello", 1));
}

#[tokio::test]
async fn details_are_in_the_last_event_alone() {
    let world = World::new().await;
    let events = stream(&world, json!({"max_new_tokens": 3, "details": true})).await.events();
    let shown: Vec<&Value> = events.iter().map(|event| &event["details"]).collect();
    let last = json!({"finish_reason": "length", "generated_tokens": 3, "seed": null, "input_length": 5});
    assert_eq!(shown, [&Value::Null, &Value::Null, &last]);
}

#[tokio::test]
async fn top_tokens_are_there_when_asked_for() {
    let events = stream(&World::new().await, json!({"max_new_tokens": 2, "top_n_tokens": 2})).await.events();
    for event in events {
        assert_eq!(event["top_tokens"].as_array().unwrap().len(), 2);
        assert_eq!(event["top_tokens"][0], event["token"]);
    }
}

#[tokio::test]
async fn every_event_has_a_logprob_and_the_next_index() {
    let events = stream(&World::new().await, json!({"max_new_tokens": 50})).await.events();
    assert_eq!(events.len(), 50);
    for (place, event) in events.iter().enumerate() {
        assert_eq!(event["index"], place + 1);
        assert!(event["token"]["logprob"].is_number());
    }
}

#[tokio::test]
async fn a_stop_string_ends_the_stream_with_itself() {
    let world = World::new().await;
    let text = world.expected("Hello", 20);
    let stop = &text[5..7];
    let end = text.find(stop).unwrap() + 2;
    let events = stream(&world, json!({"max_new_tokens": 20, "stop": [stop], "details": true})).await.events();
    assert_eq!(events.len(), end);
    assert_eq!(events[end - 1]["generated_text"], text[..end]);
    assert_eq!(events[end - 1]["details"]["finish_reason"], "stop_sequence");
}

#[tokio::test]
async fn line_separators_are_escaped_in_every_event() {
    let world = World::with(Setup { choices: vec![LINE_SEPARATOR], ..Setup::default() }).await;
    let answer = stream(&world, json!({"max_new_tokens": 2})).await;
    assert!(!answer.text.contains('\u{2028}'));
    assert_eq!(answer.text.matches(r"\u2028").count(), 4);
    assert_eq!(answer.events()[1]["generated_text"], "\u{2028}\u{2028}");
}

#[tokio::test]
async fn the_root_route_streams_when_told_to_with_the_prompt_in_the_whole_text() {
    let world = World::new().await;
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 2}, "stream": true});
    let events = world.post("/", body).await.events();
    assert_eq!(events[0]["generated_text"], Value::Null);
    assert_eq!(events[1]["generated_text"], format!("Hello{}", world.expected("Hello", 2)));
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_an_event() {
    let world = World::new().await;
    for (parameters, sentence) in [
        (json!({"decoder_input_details": true}), "`decoder_input_details` == true is not supported when streaming"),
        (json!({"best_of": 2, "do_sample": true}), "`best_of` != 1 is not supported when streaming tokens"),
        (json!({"best_of": 0}), "`best_of` != 1 is not supported when streaming tokens"),
        (json!({"temperature": 0}), "`temperature` must be strictly positive"),
        (json!({"max_new_tokens": 1000}), "`inputs` tokens + `max_new_tokens` must be <= 128"),
    ] {
        let answer = stream(&world, parameters.clone()).await;
        let events = answer.events();
        assert_eq!(events.len(), 1, "{parameters}");
        assert_eq!(events[0]["error_type"], "validation");
        assert!(events[0]["error"].as_str().unwrap().contains(sentence), "{}", events[0]);
        assert_eq!(answer.header("x-accel-buffering"), "no");
    }
}

#[tokio::test]
async fn empty_inputs_are_an_event() {
    let answer = World::new().await.post("/generate_stream", json!({"inputs": ""})).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.events()[0]["error_type"], "validation");
}

#[tokio::test]
async fn a_shard_that_fails_midway_is_an_event_after_the_tokens() {
    let world = World::new().await;
    world.handle.stall();
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 100}}).to_string();
    let response = world.open(post("/generate_stream", body)).await;
    assert_eq!(response.status(), 200);
    world.handle.die();
    let bytes = soon(response.into_body().collect()).await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let last = text.trim_end().rsplit("\n\n").next().unwrap();
    let event: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(event["error_type"], "generation");
    assert!(event["error"].as_str().unwrap().starts_with("Request failed during generation: "), "{event}");
}

#[tokio::test]
async fn a_silent_stream_sends_a_comment_every_fifteen_seconds() {
    let world = World::new().await;
    world.handle.stall();
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 2}}).to_string();
    let mut body = world.open(post("/generate_stream", body)).await.into_body();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    for expected in [15, 30] {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&frame[..], b":\n\n");
        assert_eq!(began.elapsed().as_secs(), expected);
    }
    tokio::time::resume();
    world.handle.resume();
    let rest = soon(body.collect()).await.unwrap().to_bytes();
    assert!(rest.starts_with(b"data: {\"index\":1,"));
}

#[tokio::test]
async fn dropping_a_stream_cancels_and_frees_its_blocks() {
    let world = World::new().await;
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 120}}).to_string();
    let mut body = world.open(post("/generate_stream", body)).await.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    world.wait_until_idle().await;
}

#[tokio::test]
async fn tokens_that_wait_together_go_out_in_one_frame() {
    let world = World::new().await;
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 40}}).to_string();
    let response = world.open(post("/generate_stream", body)).await;
    world.wait_until_idle().await;
    let mut body = response.into_body();
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame.windows(6).filter(|window| window == b"data: ").count(), 40);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_request_id_is_echoed_and_made_where_there_is_none() {
    let world = World::new().await;
    let ask = |id: Option<&str>| {
        let request = Request::post("/generate_stream").header("content-type", "application/json");
        let request = id.iter().fold(request, |request, id| request.header("x-request-id", *id));
        request.body(json!({"inputs": "x", "parameters": {"max_new_tokens": 1}}).to_string().into()).unwrap()
    };
    assert_eq!(world.send(ask(Some("abc-123"))).await.header("x-request-id"), "abc-123");
    for bad in [None, Some(""), Some("with space"), Some(&*"x".repeat(129))] {
        let made = world.send(ask(bad)).await.header("x-request-id").to_owned();
        assert!(made.len() == 32 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{made}");
    }
    assert_eq!(world.get("/nope").await.header("x-request-id").len(), 32);
}
