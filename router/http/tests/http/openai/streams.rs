//! Streams of both routes: chunks, their order, and errors before and after the first.

use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{PROMPT, chat, chat_prompt, chat_world, chunks, complete, completion, with_template};
use crate::tokenizer::{END, LINE_SEPARATOR, ids};
use crate::world::{Answer, Setup, World, post, soon};

async fn stream(world: &World, body: Value) -> Answer {
    let mut body = completion(body);
    body["stream"] = json!(true);
    world.post("/v1/completions", body).await
}

async fn chat_stream(world: &World, body: Value) -> Answer {
    let mut body = chat(body);
    body["stream"] = json!(true);
    world.post("/v1/chat/completions", body).await
}

fn texts(chunks: &[Value], index: usize) -> String {
    let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
    choices.filter(|choice| choice["index"] == index).map(|choice| choice["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_chunk_is_these_bytes() {
    let world = chat_world().await;
    let answer = chat_stream(&world, json!({"max_tokens": 1, "model": "any"})).await;
    let text = world.expected(&chat_prompt("Hi"), 1);
    let created = answer.text.split("\"created\":").nth(1).unwrap().split(',').next().unwrap();
    let expected = format!(
        "data: {{\"object\":\"chat.completion.chunk\",\"id\":\"chatcmpl-{}\",\"created\":{created},\"model\":\"any\",\
         \"system_fingerprint\":\"0.0.0-native\",\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\
         \"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":\"length\"}}],\"usage\":null}}\n\ndata: [DONE]\n\n",
        answer.header("x-request-id"),
    );
    assert_eq!(answer.text, expected);
}

#[tokio::test]
async fn a_chats_chunks_are_one_per_token_and_the_role_is_in_the_first() {
    let world = chat_world().await;
    let chunks = chunks(&chat_stream(&world, json!({"max_tokens": 6})).await);
    assert_eq!(chunks.len(), 6);
    let contents: String =
        chunks.iter().map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(contents, world.expected(&chat_prompt("Hi"), 6));
    for (place, chunk) in chunks.iter().enumerate() {
        let choice = &chunk["choices"][0];
        assert_eq!(choice["delta"].get("role"), (place == 0).then_some(&json!("assistant")));
        assert_eq!(choice["finish_reason"], if place == 5 { json!("length") } else { Value::Null });
        assert_eq!((&chunk["id"], &chunk["usage"]), (&chunks[0]["id"], &Value::Null));
    }
}

#[tokio::test]
async fn headers_are_those_of_a_stream() {
    let world = World::new().await;
    let answer = stream(&world, json!({})).await;
    assert_eq!(answer.header("x-accel-buffering"), "no");
    assert_eq!((answer.header("x-compute-type"), answer.header("x-compute-characters")), ("cpu", "24"));
}

#[tokio::test]
async fn usage_comes_in_a_chunk_of_its_own_when_asked_for() {
    let world = chat_world().await;
    let asked = json!({"stream_options": {"include_usage": true}});
    let prompt_tokens = chat_prompt("Hi").len();
    let chat = chunks(&chat_stream(&world, asked.clone()).await);
    let last = chat.last().unwrap();
    assert_eq!((chat.len(), &last["choices"]), (5, &json!([])));
    assert_eq!(
        (&last["usage"]["prompt_tokens"], &last["usage"]["completion_tokens"]),
        (&json!(prompt_tokens), &json!(4))
    );
    let completion = chunks(&stream(&world, json!({"stream_options": {"include_usage": true}, "n": 2})).await);
    let usage = &completion.last().unwrap()["usage"];
    assert_eq!((completion.len(), &usage["prompt_tokens"], &usage["completion_tokens"]), (9, &json!(24), &json!(8)));
}

#[tokio::test]
async fn a_completions_last_chunk_of_each_choice_says_its_usage() {
    let world = World::new().await;
    let chunks = chunks(&stream(&world, json!({"prompt": ["a", "bcd"], "max_tokens": 2})).await);
    let ends: Vec<&Value> = chunks.iter().filter(|chunk| !chunk["usage"].is_null()).collect();
    assert_eq!(ends.len(), 2);
    for (end, prompt_tokens) in ends.iter().zip([1, 3]) {
        assert_eq!(end["choices"][0]["finish_reason"], "length");
        assert_eq!(
            (&end["usage"]["prompt_tokens"], &end["usage"]["total_tokens"]),
            (&json!(prompt_tokens), &json!(prompt_tokens + 2))
        );
    }
}

#[tokio::test]
async fn several_prompts_take_turns_token_by_token() {
    let world = World::new().await;
    let prompts = ["one", "two, which is longer", "3"];
    let chunks = chunks(&stream(&world, json!({"prompt": prompts, "max_tokens": 5})).await);
    let order: Vec<u64> = chunks.iter().map(|chunk| chunk["choices"][0]["index"].as_u64().unwrap()).collect();
    assert_eq!(order, [0, 1, 2].repeat(5));
    for (place, prompt) in prompts.iter().enumerate() {
        assert_eq!(texts(&chunks, place), world.expected(prompt, 5));
    }
}

#[tokio::test]
async fn each_choice_of_a_stream_begins_with_a_role() {
    let world = chat_world().await;
    let chunks = chunks(&chat_stream(&world, json!({"n": 2, "temperature": 1})).await);
    for index in [0, 1] {
        let own = chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == index);
        let roles: Vec<bool> = own.map(|chunk| chunk["choices"][0]["delta"].get("role").is_some()).collect();
        assert_eq!(roles, [true, false, false, false]);
    }
}

#[tokio::test]
async fn the_texts_of_a_stream_are_together_the_whole_answer() {
    let world = World::with(Setup { choices: [ids("ab"), vec![END]].concat(), ..Setup::default() }).await;
    let text = world.expected(PROMPT, 40);
    for body in [
        json!({"max_tokens": 40}),
        json!({"max_tokens": 40, "ignore_eos": true}),
        json!({"max_tokens": 40, "ignore_eos": true, "stop": &text[6..8]}),
        json!({"max_tokens": 40, "ignore_eos": true, "stop": [format!("{}x", &text[3..9]), "bbbbbb"]}),
        json!({"max_tokens": 40, "echo": true, "prompt": ids(PROMPT)}),
    ] {
        let whole = complete(&world, body.clone()).await["choices"][0].clone();
        let chunks = chunks(&stream(&world, body.clone()).await);
        assert_eq!(texts(&chunks, 0), whole["text"], "{body}");
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], whole["finish_reason"], "{body}");
    }
}

#[tokio::test]
async fn an_end_of_sequence_is_a_chunk_without_text() {
    let world = World::with(with_template(Setup { choices: vec![END], ..Setup::default() })).await;
    let chunks = chunks(&chat_stream(&world, json!({})).await);
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(chunks[0]["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn line_separators_are_escaped_in_every_chunk() {
    let world = World::with(Setup { choices: vec![LINE_SEPARATOR], ..Setup::default() }).await;
    let answer = stream(&world, json!({"max_tokens": 3})).await;
    assert!(!answer.text.contains('\u{2028}'));
    assert_eq!(texts(&chunks(&answer), 0), "\u{2028}\u{2028}\u{2028}");
}

#[tokio::test]
async fn what_is_wrong_with_a_stream_has_its_status() {
    let world = chat_world().await;
    for (body, status, error_type) in [
        (json!({"temperature": -1}), 422, "validation"),
        (json!({"max_tokens": 1000}), 422, "validation"),
        (json!({"response_format": {"type": "json_object"}}), 422, "validation"),
        (json!({"tools": [{"type": "function", "function": {"name": "f"}}]}), 422, "tool_error"),
    ] {
        let answer = chat_stream(&world, body.clone()).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (status, error_type), "{body}");
        assert_eq!(answer.header("content-type"), "application/json");
        assert!(answer.json()["error"]["message"].is_string());
    }
}

#[tokio::test]
async fn a_stream_that_fails_before_its_first_token_has_its_status() {
    let world = World::new().await;
    world.handle.fail_next_step();
    let answer = stream(&world, json!({})).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (424, "generation"));
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("injected failure"), "{}", answer.text);
}

#[tokio::test]
async fn a_stream_that_fails_later_says_so_in_an_event_of_openais_shape_and_is_done() {
    let world = World::new().await;
    let body = completion(json!({"max_tokens": 100, "stream": true})).to_string();
    let response = world.open(post("/v1/completions", body)).await;
    assert_eq!(response.status(), 200);
    world.handle.die();
    let bytes = soon(response.into_body().collect()).await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let mut events = text.trim_end().rsplit("\n\n");
    assert_eq!(events.next(), Some("data: [DONE]"));
    let event: Value = serde_json::from_str(events.next().unwrap().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((&event["error_type"], &event["error"]["http_status_code"]), (&json!("generation"), &json!(424)));
    assert!(event["error"]["message"].as_str().unwrap().starts_with("Request failed during generation: "), "{event}");
}

#[tokio::test]
async fn a_long_wait_for_the_first_token_begins_with_a_comment() {
    let world = World::new().await;
    world.handle.stall();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let body = completion(json!({"max_tokens": 2, "stream": true})).to_string();
    let mut body = world.open(post("/v1/completions", body)).await.into_body();
    assert_eq!(began.elapsed().as_secs(), 15);
    assert_eq!(&body.frame().await.unwrap().unwrap().into_data().unwrap()[..], b":\n\n");
    tokio::time::resume();
    world.handle.resume();
    let rest = soon(body.collect()).await.unwrap().to_bytes();
    assert!(rest.starts_with(b"data: {") && rest.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test]
async fn leaving_a_stream_cancels_all_its_choices() {
    let world = World::new().await;
    let body = completion(json!({"max_tokens": 100, "stream": true, "n": 3})).to_string();
    let mut body = world.open(post("/v1/completions", body)).await.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    world.wait_until_idle().await;
}
