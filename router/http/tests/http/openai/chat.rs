//! Whole answers of `/v1/chat/completions`.

use serde_json::json;

use super::{chat, chat_prompt, chat_world, converse, with_template};
use crate::world::{Setup, World};

#[tokio::test]
async fn an_answer_has_openais_shape_and_no_null_is_left_out() {
    let world = chat_world().await;
    let answer = converse(&world, json!({})).await;
    let message = json!({"role": "assistant", "content": world.expected(&chat_prompt("Hi"), 4)});
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "length"});
    assert_eq!((&answer["object"], &answer["choices"]), (&json!("chat.completion"), &json!([choice])));
    let prompt_tokens = chat_prompt("Hi").len();
    assert_eq!(answer["usage"]["prompt_tokens"], prompt_tokens);
    assert_eq!(answer["usage"]["total_tokens"], prompt_tokens + 4);
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
}

#[tokio::test]
async fn the_last_message_of_an_assistant_is_gone_on_with() {
    let world = chat_world().await;
    let messages = json!([{"role": "user", "content": "Count"}, {"role": "assistant", "content": "1, 2,"}]);
    let answer = converse(&world, json!({"messages": messages})).await;
    assert_eq!(answer["choices"][0]["message"]["content"], world.expected("[user]Count[assistant]1, 2,", 4));
}

#[tokio::test]
async fn headers_are_tgis_and_count_the_prompts_characters() {
    let world = chat_world().await;
    let answer = world.post("/v1/chat/completions", chat(json!({}))).await;
    assert_eq!(answer.header("x-compute-characters"), chat_prompt("Hi").len().to_string());
    for name in ["x-compute-time", "x-total-time", "x-queue-time", "x-prompt-tokens", "x-generated-tokens"] {
        answer.header(name);
    }
}

#[tokio::test]
async fn what_other_servers_and_sdks_send_is_taken() {
    let world = chat_world().await;
    converse(
        &world,
        json!({
            "model": "tgi", "max_completion_tokens": 4, "top_p": 1.0, "presence_penalty": 0.5, "frequency_penalty": 0.5,
            "logit_bias": {"5": 1}, "seed": 3, "stop": "\u{1F980}", "stream_options": null, "user": "me",
            "metadata": {"a": "b"}, "service_tier": "auto", "store": false, "parallel_tool_calls": true,
            "response_format": {"type": "text"}, "tools": [], "tool_choice": "auto", "tool_prompt": "x",
            "chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low", "modalities": ["text"],
        }),
    )
    .await;
}

#[tokio::test]
async fn a_chat_that_cannot_be_rendered_is_422_in_tgis_words() {
    let answer = World::new().await.post("/v1/chat/completions", chat(json!({}))).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "template_error"));
    let error = &answer.json()["error"];
    assert_eq!(error["param"], "messages");
    assert!(error["message"].as_str().unwrap().contains("template not found"), "{error}");
}

#[tokio::test]
async fn a_message_that_is_wrong_is_named_with_its_place() {
    let world = chat_world().await;
    for (messages, param) in [
        (json!("hi"), "messages"),
        (json!([{"role": "user", "content": "a"}, {"content": "b"}]), "messages[1]"),
        (json!([{"role": "user", "content": null}]), "messages[0]"),
    ] {
        let answer = world.post("/v1/chat/completions", chat(json!({"messages": messages}))).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["param"]), (422, &json!(param)), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_huge_chat_that_no_tokens_could_make_short_enough_is_refused_before_it_is_tokenized() {
    for guarded in [false, true] {
        let world = World::with(with_template(Setup { guarded, ..Setup::default() })).await;
        // The longest token has 7 bytes. `<` is kept from beginning one under the guard, and is a byte all the same.
        let text = "<".repeat(70_001 - chat_prompt("").len());
        let huge = |stream| chat(json!({"messages": [{"role": "user", "content": text}], "stream": stream}));
        for body in [huge(false), huge(true)] {
            let answer = world.post("/v1/chat/completions", body).await;
            assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "validation"));
            let message = answer.json()["error"]["message"].to_string();
            assert!(message.contains("Given: at least 10001 `inputs` tokens and 4 `max_new_tokens`"), "{message}");
        }
        let mut truncated = huge(false);
        truncated["truncate_prompt_tokens"] = json!(5);
        assert_eq!(world.post("/v1/chat/completions", truncated).await.status, 200);
        let counted = world.post("/chat_tokenize", huge(false)).await.json();
        assert_eq!(counted["tokenize_response"].as_array().unwrap().len(), 70_001);
    }
}
