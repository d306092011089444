//! Log-probabilities of both routes.

use headrace_http::Limits;
use serde_json::{Value, json};

use super::{PROMPT, chat, chat_prompt, chat_world, chunks, complete, completion, converse, with_template};
use crate::tokenizer::ids;
use crate::world::{Setup, World, shown};

#[tokio::test]
async fn a_completions_lists_are_parallel() {
    let world = World::new().await;
    let answer = complete(&world, json!({"logprobs": 2})).await;
    let logprobs = &answer["choices"][0]["logprobs"];
    let text = world.expected(PROMPT, 4);
    let tokens: Vec<String> = text.chars().map(String::from).collect();
    let expected: Vec<Value> = world.shard.expected_logprobs(&ids(PROMPT), 4).into_iter().map(shown).collect();
    assert_eq!(logprobs["tokens"], json!(tokens));
    assert_eq!(logprobs["token_logprobs"], json!(expected));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3]));
    for (top, (token, logprob)) in logprobs["top_logprobs"].as_array().unwrap().iter().zip(tokens.iter().zip(&expected))
    {
        assert_eq!((top.as_object().unwrap().len(), &top[token]), (2, logprob));
    }
}

#[tokio::test]
async fn without_top_tokens_there_is_the_chosen_one() {
    let world = World::new().await;
    let logprobs = &complete(&world, json!({"logprobs": 0})).await["choices"][0]["logprobs"];
    assert_eq!(logprobs["top_logprobs"], Value::Null);
    assert_eq!(logprobs["token_logprobs"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn an_echo_has_those_of_the_prompt_and_the_first_has_none() {
    let world = World::new().await;
    for n in [1, 2] {
        let answer =
            complete(&world, json!({"prompt": "Käse", "echo": true, "logprobs": 1, "max_tokens": 2, "n": n})).await;
        let prompt = world.shard.expected_prompt_logprobs(&ids("Käse"));
        for choice in answer["choices"].as_array().unwrap() {
            let logprobs = &choice["logprobs"];
            assert_eq!(logprobs["tokens"].as_array().unwrap().len(), 5 + 2);
            assert_eq!((&logprobs["token_logprobs"][0], &logprobs["top_logprobs"][0]), (&Value::Null, &Value::Null));
            assert_eq!(logprobs["token_logprobs"][4], shown(prompt[4]));
            assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 2, 3, 4, 5]), "`ä` is two tokens");
        }
    }
}

/// What evaluation harnesses ask: how likely is this text?
#[tokio::test]
async fn a_prompt_can_be_scored_without_an_answer() {
    let world = World::new().await;
    let answer = complete(&world, json!({"echo": true, "logprobs": 0, "max_tokens": 0})).await;
    let choice = &answer["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(PROMPT), &json!("length")));
    assert_eq!(choice["logprobs"]["token_logprobs"].as_array().unwrap().len(), PROMPT.len());
    assert_eq!((&answer["usage"]["completion_tokens"], &answer["usage"]["total_tokens"]), (&json!(0), &json!(24)));
}

#[tokio::test]
async fn a_prompt_that_is_scored_alone_generates_nothing_as_far_as_anybody_is_told() {
    let world = World::new().await;
    let asked = json!({"echo": true, "logprobs": 0, "max_tokens": 0, "n": 2});
    let whole = world.post("/v1/completions", completion(asked.clone())).await;
    assert_eq!((whole.header("x-generated-tokens"), &whole.json()["usage"]["completion_tokens"]), ("0", &json!(0)));
    for (options, usages) in [(json!(null), 2), (json!({"include_usage": true}), 1)] {
        let mut streamed = completion(asked.clone());
        (streamed["stream"], streamed["stream_options"]) = (json!(true), options);
        let chunks = chunks(&world.post("/v1/completions", streamed).await);
        let choices: Vec<&Value> = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()).collect();
        assert_eq!(choices.len(), 2, "{chunks:?}");
        for choice in choices {
            let index = choice["index"].as_u64().unwrap() as usize;
            assert_eq!(choice, &whole.json()["choices"][index]);
            assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(PROMPT), &json!("length")));
        }
        let told: Vec<&Value> = chunks.iter().map(|chunk| &chunk["usage"]).filter(|usage| !usage.is_null()).collect();
        assert_eq!(told.len(), usages, "{chunks:?}");
        assert!(told.iter().all(|usage| usage["completion_tokens"] == 0 && usage["total_tokens"] == 24), "{told:?}");
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_to_be_scored_is_told_the_length_that_was_asked_for() {
    let world = World::new().await;
    let asked = json!({"prompt": "x".repeat(129), "echo": true, "logprobs": 0, "max_tokens": 0});
    let answer = world.post("/v1/completions", completion(asked)).await;
    let error = &answer.json()["error"];
    let sentence = "must be <= 128. Given: 129 `inputs` tokens and 0 `max_new_tokens`";
    assert!(error["message"].as_str().unwrap().contains(sentence), "{error}");
}

#[tokio::test]
async fn a_completions_chunks_have_the_lists_of_the_whole_answer() {
    let world = World::new().await;
    let body = json!({"logprobs": 2, "echo": true, "max_tokens": 5});
    let whole = complete(&world, body.clone()).await["choices"][0]["logprobs"].clone();
    let mut stream = completion(body);
    stream["stream"] = json!(true);
    let chunks = chunks(&world.post("/v1/completions", stream).await);
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let of = |chunk: &Value| chunk["choices"][0]["logprobs"][list].as_array().unwrap().clone();
        let joined: Vec<Value> = chunks.iter().flat_map(of).collect();
        assert_eq!(Value::Array(joined), whole[list], "{list}");
    }
}

#[tokio::test]
async fn a_chats_tokens_have_bytes_and_likely_ones() {
    let world = chat_world().await;
    let answer = converse(&world, json!({"logprobs": true, "top_logprobs": 2})).await;
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let text = world.expected(&chat_prompt("Hi"), 4);
    let expected = world.shard.expected_logprobs(&ids(&chat_prompt("Hi")), 4);
    assert_eq!(content.len(), 4);
    for (place, entry) in content.iter().enumerate() {
        let token = &text[place..=place];
        let first = json!({"token": token, "logprob": shown(expected[place]), "bytes": token.as_bytes()});
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 2);
        assert_eq!(entry["top_logprobs"][0], first);
        assert_eq!((&entry["token"], &entry["bytes"]), (&first["token"], &first["bytes"]));
    }
}

#[tokio::test]
async fn a_chat_tells_likely_tokens_only_beside_log_probabilities() {
    let world = chat_world().await;
    for body in [json!({"top_logprobs": 2}), json!({"logprobs": false, "top_logprobs": 2})] {
        assert_eq!(converse(&world, body).await["choices"][0]["logprobs"], Value::Null);
    }
    let alone = converse(&world, json!({"logprobs": true})).await;
    assert_eq!(alone["choices"][0]["logprobs"]["content"][0]["top_logprobs"], json!([]));
}

#[tokio::test]
async fn each_route_has_its_own_limit_of_likely_tokens_and_names_the_field_that_was_sent() {
    let limits =
        Limits { max_top_n_tokens: 1, max_chat_logprobs: 20, max_completion_logprobs: 5, ..Setup::default().limits };
    let world = World::with(with_template(Setup { limits, ..Setup::default() })).await;
    let asked = async |path: &str, body: Value| world.post(path, body).await;
    let top = |n| chat(json!({"logprobs": true, "top_logprobs": n}));
    let answer = asked("/v1/chat/completions", top(20)).await.json();
    let first = &answer["choices"][0]["logprobs"]["content"][0];
    assert_eq!(first["top_logprobs"].as_array().unwrap().len(), 20, "{answer}");
    assert_eq!(asked("/v1/completions", completion(json!({"logprobs": 5}))).await.status, 200);
    for (path, body, field, max) in [
        ("/v1/chat/completions", top(21), "top_logprobs", 20),
        ("/v1/completions", completion(json!({"logprobs": 6})), "logprobs", 5),
    ] {
        let refused = asked(path, body).await;
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status.as_u16(), &error["param"]), (422, &json!(field)));
        let sentence = format!(
            "`{field}` must be >= 0 and <= {max}. Given: {}. Ask for fewer, or raise --max-top-n-tokens",
            max + 1
        );
        assert!(error["message"].as_str().unwrap().contains(&sentence), "{error}");
    }
    let native = json!({"inputs": "x", "parameters": {"details": true, "top_n_tokens": 2}});
    assert_eq!(asked("/generate", native).await.status, 422);
}
