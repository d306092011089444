//! `/invocations` and `/vertex`: other names and other wrappings of the same requests.

use serde_json::{Value, json};

use crate::openai::{chat, chat_prompt, chat_world, completion};
use crate::world::World;

const PROMPT: &str = "The capital of France is";

#[tokio::test]
async fn an_invocation_is_answered_by_the_route_that_its_body_is_of() {
    let world = chat_world().await;
    let generate = json!({"inputs": PROMPT, "parameters": {"max_new_tokens": 3}});
    let text = format!("{PROMPT}{}", world.expected(PROMPT, 3));
    assert_eq!(world.post("/invocations", generate).await.json(), json!([{"generated_text": text}]));
    let chat = world.post("/invocations", chat(json!({}))).await.json();
    assert_eq!(chat["choices"][0]["message"]["content"], world.expected(&chat_prompt("Hi"), 4));
    let completion = world.post("/invocations", completion(json!({}))).await.json();
    assert_eq!(completion["choices"][0]["text"], world.expected(PROMPT, 4));
}

#[tokio::test]
async fn an_invocation_streams_as_its_route_does() {
    let world = chat_world().await;
    let native =
        world.post("/invocations", json!({"inputs": "x", "parameters": {"max_new_tokens": 2}, "stream": true})).await;
    assert_eq!(native.events().len(), 2);
    let chat = world.post("/invocations", chat(json!({"stream": true}))).await;
    assert!(chat.text.ends_with("data: [DONE]\n\n"), "{}", chat.text);
}

#[tokio::test]
async fn an_invocation_that_asks_for_nothing_is_told_what_to_send() {
    let world = chat_world().await;
    for body in [json!({}), json!({"text": "x"}), json!({"inputs": null})] {
        let answer = world.post("/invocations", body).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "validation"));
        assert!(answer.error().contains("`messages`"), "{}", answer.error());
    }
}

#[tokio::test]
async fn an_invocations_errors_have_the_native_shape_and_name_the_field() {
    let world = chat_world().await;
    let answer = world.post("/invocations", chat(json!({"temperature": "hot"}))).await;
    assert_eq!(answer.status, 422);
    assert!(answer.error().contains("`temperature`"), "{}", answer.error());
}

async fn predict(world: &World, instances: Value) -> Value {
    let answer = world.post("/vertex", json!({"instances": instances})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["predictions"].clone()
}

#[tokio::test]
async fn predictions_are_the_texts_of_the_instances_in_their_order() {
    let world = chat_world().await;
    let greedy = |prompt: &str, tokens: u32| json!({"inputs": prompt, "parameters": {"max_new_tokens": tokens, "do_sample": false}});
    let predictions = predict(&world, json!([greedy(PROMPT, 9), chat(json!({"stream": true})), greedy("b", 2)])).await;
    assert_eq!(
        predictions,
        json!([world.expected(PROMPT, 9), world.expected(&chat_prompt("Hi"), 4), world.expected("b", 2)])
    );
}

#[tokio::test]
async fn an_instance_samples_unless_it_says_otherwise() {
    let world = World::new().await;
    let one = json!({"inputs": PROMPT, "parameters": {"max_new_tokens": 30, "seed": 5}});
    let sampled = json!({"inputs": PROMPT, "parameters": {"max_new_tokens": 30, "seed": 5, "do_sample": true}});
    let expected = world.post("/generate", sampled).await.json()["generated_text"].clone();
    assert_eq!(predict(&world, json!([one])).await, json!([expected]));
}

#[tokio::test]
async fn an_instance_that_fails_fails_all_with_its_own_status_and_sentence() {
    let world = chat_world().await;
    let good = json!({"inputs": "a", "parameters": {"max_new_tokens": 1}});
    for (bad, status, error_type, sentence) in [
        (json!({"inputs": ""}), 422, "validation", "`inputs` cannot be empty"),
        (json!({"inputs": "a", "parameters": {"max_new_tokens": "x"}}), 422, "validation", "`instances[1]`"),
        (json!({"messages": "a"}), 422, "validation", "`messages`"),
        (chat(json!({"response_format": {"type": "json_object"}})), 422, "validation", "`response_format`"),
    ] {
        let answer = world.post("/vertex", json!({"instances": [good, bad]})).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (status, error_type), "{}", answer.text);
        assert!(answer.error().contains(sentence), "{}", answer.error());
    }
    world.wait_until_idle().await;
}

#[tokio::test]
async fn no_instances_are_refused_in_tgis_words() {
    let answer = World::new().await.post("/vertex", json!({"instances": []})).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "Input validation error"));
}
