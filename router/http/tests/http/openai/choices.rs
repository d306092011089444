//! `n` and `best_of`: several answers to one prompt, which is computed once.

use serde_json::{Value, json};

use super::{PROMPT, chat, chat_prompt, chat_world, complete, completion, converse};
use crate::world::{Setup, World};

async fn world_of(max_concurrent_requests: u32, max_best_of: u32) -> World {
    let mut setup = Setup::default();
    setup.limits.max_concurrent_requests = max_concurrent_requests;
    setup.limits.max_best_of = max_best_of;
    World::with(setup).await
}

fn texts(answer: &Value) -> Vec<&str> {
    answer["choices"].as_array().unwrap().iter().map(|choice| choice["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn n_choices_come_back_and_the_prompt_counts_once() {
    let world = World::new().await;
    let answer = complete(&world, json!({"n": 3})).await;
    let expected = world.expected(PROMPT, 4);
    assert_eq!(texts(&answer), [expected.as_str(); 3]);
    let indices: Vec<&Value> = answer["choices"].as_array().unwrap().iter().map(|choice| &choice["index"]).collect();
    assert_eq!(indices, [0, 1, 2]);
    assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]), (&json!(24), &json!(12)));
}

#[tokio::test]
async fn choices_of_several_prompts_are_grouped_by_prompt() {
    let world = World::new().await;
    let answer = complete(&world, json!({"prompt": ["one", "two"], "n": 2})).await;
    let (one, two) = (world.expected("one", 4), world.expected("two", 4));
    assert_eq!(texts(&answer), [&one, &one, &two, &two]);
}

/// In blocks of 32: two whole blocks and a part, and a part alone. All but the first choice compute the last token only.
#[tokio::test]
async fn the_prompt_of_n_choices_is_computed_once() {
    let best_of = json!({"best_of": 4, "do_sample": true, "max_new_tokens": 4});
    for (path, length) in [("/v1/completions", 81), ("/generate", 81), ("/v1/completions", 20), ("/generate", 20)] {
        let prompt = "x".repeat(length);
        let body = match path {
            "/generate" => json!({"inputs": prompt, "parameters": best_of}),
            _ => completion(json!({"prompt": prompt, "n": 4})),
        };
        let world = world_of(8, 4).await;
        let answer = world.post(path, body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        world.wait_until_idle().await;
        let computed = world.handle.prompt_tokens_computed();
        assert_eq!(computed, length as u64 + 3, "{path}, {length} tokens");
    }
}

#[tokio::test]
async fn best_of_generates_more_than_it_answers() {
    let world = world_of(8, 4).await;
    let answer = complete(&world, json!({"best_of": 4, "n": 2, "temperature": 1, "seed": 7})).await;
    let indices: Vec<&Value> = answer["choices"].as_array().unwrap().iter().map(|choice| &choice["index"]).collect();
    assert_eq!(indices, [0, 1]);
    assert_eq!(answer["usage"]["completion_tokens"], 16, "all that was generated");
    assert_eq!(answer["choices"][0]["logprobs"], Value::Null, "nobody asked to see them");
}

#[tokio::test]
async fn each_choice_takes_a_place() {
    let world = world_of(3, 2).await;
    world.handle.stall();
    let stream = json!({"n": 2, "stream": true});
    let running = tokio::spawn({
        let router = world.router.clone();
        async move {
            tower::ServiceExt::oneshot(router, crate::world::post("/v1/completions", completion(stream).to_string()))
                .await
        }
    });
    while world.engine.snapshot().running + world.engine.snapshot().waiting < 2 {
        tokio::task::yield_now().await;
    }
    let refused = world.post("/v1/completions", completion(json!({"n": 2}))).await;
    assert_eq!((refused.status.as_u16(), refused.error_type().as_str()), (429, "overloaded"));
    world.handle.resume();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn more_choices_than_could_ever_run_are_refused_with_the_limit() {
    let world = world_of(6, 2).await;
    for (body, param, sentence) in [
        (json!({"n": 0}), "n", "must be > 0"),
        (json!({"n": 7}), "n", "<= 6"),
        (json!({"n": 3, "prompt": ["a", "b", "c"]}), "n", "<= 2"),
        (json!({"n": 2, "best_of": 1}), "best_of", "must be >= `n`, which is 2"),
        (json!({"n": 1, "best_of": 3}), "best_of", "<= 2"),
        (json!({"n": 1, "best_of": 2, "stream": true}), "best_of", "not supported when streaming"),
    ] {
        let answer = world.post("/v1/completions", completion(body.clone())).await;
        assert_eq!(answer.status, 422, "{body}");
        let error = &answer.json()["error"];
        assert_eq!(error["param"], param, "{body}");
        assert!(error["message"].as_str().unwrap().contains(sentence), "{body}: {error}");
    }
}

#[tokio::test]
async fn chats_have_choices_too() {
    let world = chat_world().await;
    let answer = converse(&world, json!({"n": 2})).await;
    let expected = world.expected(&chat_prompt("Hi"), 4);
    for choice in answer["choices"].as_array().unwrap() {
        assert_eq!(choice["message"], json!({"role": "assistant", "content": expected}));
    }
    assert_eq!(answer["choices"].as_array().unwrap().len(), 2);
    let best_of = world.post("/v1/chat/completions", chat(json!({"best_of": 9}))).await;
    assert_eq!(best_of.status, 200, "chats have no such field: {}", best_of.text);
}
