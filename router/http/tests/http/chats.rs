//! What `/chat_tokenize` makes of a chat.

use std::collections::BTreeMap;

use headrace_text::chat::ChatTemplates;
use serde_json::{Map, Value, json};

use crate::tokenizer::{END, ids};
use crate::world::{Answer, Setup, World};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}\
                        {% if add_generation_prompt %}assistant: {% endif %}";

fn setup(template: &str) -> Setup {
    let sources = BTreeMap::from([("default".to_owned(), template.to_owned())]);
    Setup { chat_templates: ChatTemplates::parse(&sources, Map::new()), ..Setup::default() }
}

async fn ask(setup: Setup, body: Value) -> Answer {
    World::with(setup).await.post("/chat_tokenize", body).await
}

async fn text(template: &str, body: Value) -> String {
    let answer = ask(setup(template), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["templated_text"].as_str().unwrap().to_owned()
}

fn hi() -> Value {
    json!([{"role": "user", "content": "Hi"}])
}

fn with_answer() -> Value {
    json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes, "}])
}

#[tokio::test]
async fn a_chat_is_shown_as_its_text_and_its_tokens() {
    let answer = ask(setup(TEMPLATE), json!({"messages": hi()})).await;
    assert_eq!(answer.header("content-type"), "application/json");
    let answer = answer.json();
    assert_eq!(answer["templated_text"], "user: Hi<|end|>assistant: ");
    let tokens = answer["tokenize_response"].as_array().unwrap();
    assert_eq!(tokens[0], json!({"id": ids("u")[0], "text": "u", "start": 0, "stop": 1}));
    assert_eq!(tokens[8], json!({"id": END, "text": "<|end|>", "start": 8, "stop": 15}));
    assert_eq!(tokens[9], json!({"id": ids("a")[0], "text": "a", "start": 15, "stop": 16}));
    assert_eq!(tokens.len(), 8 + 1 + 11);
}

#[tokio::test]
async fn a_last_message_of_the_assistant_goes_on_unless_it_is_said_otherwise() {
    for (fields, expected) in [
        (json!({}), "user: Hi<|end|>assistant: Yes,"),
        (json!({"continue_final_message": true}), "user: Hi<|end|>assistant: Yes, "),
        (
            json!({"continue_final_message": false, "add_generation_prompt": false}),
            "user: Hi<|end|>assistant: Yes, <|end|>",
        ),
        (json!({"continue_final_message": false}), "user: Hi<|end|>assistant: Yes, <|end|>assistant: "),
        (json!({"add_generation_prompt": true}), "user: Hi<|end|>assistant: Yes, <|end|>assistant: "),
    ] {
        let mut body = fields.clone();
        body["messages"] = with_answer();
        assert_eq!(text(TEMPLATE, body).await, expected, "{fields}");
    }
}

#[tokio::test]
async fn a_chat_cannot_both_go_on_and_begin_anew() {
    let body = json!({"messages": hi(), "continue_final_message": true, "add_generation_prompt": true});
    let answer = ask(setup(TEMPLATE), body).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "template_error"));
    assert!(answer.error().contains("both true"), "{}", answer.error());
}

#[tokio::test]
async fn what_else_a_chat_carries_reaches_the_template() {
    let template = "{{ tools | length }} {{ documents[0].title }} {{ enable_thinking }} {{ messages[0].name }}";
    let body = json!({
        "messages": [{"role": "user", "content": "x", "name": "Ann"}],
        "tools": [{"type": "function"}], "documents": [{"title": "T"}], "chat_template_kwargs": {"enable_thinking": false},
        "model": "tgi", "max_tokens": 5, "stream": false, "unknown": [1],
    });
    assert_eq!(text(template, body).await, "1 T False Ann");
}

#[tokio::test]
async fn tools_that_may_not_be_called_are_in_no_prompt_of_either_route() {
    let template = "{% if tools is not none %}{{ tools | tojson }}{% endif %}{{ messages[0].content }}";
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for fields in [
        json!({}),
        json!({"tools": tools, "tool_choice": "none"}),
        json!({"tools": [], "tool_choice": "auto"}),
        json!({"tools": [], "tool_choice": null}),
    ] {
        let mut body = fields.clone();
        body["messages"] = hi();
        body["max_tokens"] = json!(1);
        let world = World::with(setup(template)).await;
        let shown = world.post("/chat_tokenize", body.clone()).await.json();
        assert_eq!(shown["templated_text"], "Hi", "{fields}");
        let answer = world.post("/v1/chat/completions", body).await.json();
        assert_eq!(answer["usage"]["prompt_tokens"], 2, "{fields}: {answer}");
    }
    let shown = text(template, json!({"messages": hi(), "tools": tools})).await;
    assert!(shown.contains("\"name\": \"f\""), "{shown}");
}

#[tokio::test]
async fn a_refusal_is_text_and_so_is_a_part_that_refuses() {
    let said = |message: Value| json!({"messages": [message], "continue_final_message": false});
    for message in [
        json!({"role": "assistant", "content": null, "refusal": "No."}),
        json!({"role": "assistant", "refusal": "No."}),
        json!({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}),
        json!({"role": "assistant", "content": [{"type": "text", "text": "N"}, {"type": "refusal", "refusal": "o."}]}),
        json!({"role": "assistant", "content": "No.", "refusal": "Never."}),
    ] {
        assert_eq!(text(TEMPLATE, said(message.clone())).await, "assistant: No.<|end|>assistant: ", "{message}");
    }
    let call = json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}});
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.function_call.name }}{% endfor %}";
    assert_eq!(text(template, said(call)).await, "assistant: f");
}

#[tokio::test]
async fn contents_are_text_or_parts() {
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]);
    assert_eq!(text(TEMPLATE, json!({"messages": parts})).await, "user: ab<|end|>assistant: ");
}

#[tokio::test]
async fn fields_that_an_sdk_writes_as_null_are_not_there() {
    let template = "{{ messages[0].tool_calls is defined }}{{ messages[0].refusal is defined }}";
    let messages = json!([{"role": "assistant", "content": "x", "tool_calls": null, "refusal": null}]);
    assert_eq!(text(template, json!({"messages": messages, "continue_final_message": false})).await, "FalseFalse");
}

#[tokio::test]
async fn a_model_without_a_template_says_so_in_tgis_words() {
    let answer = ask(Setup::default(), json!({"messages": hi()})).await;
    assert_eq!(answer.status, 422);
    assert_eq!(answer.json(), json!({"error": "Template error: template not found", "error_type": "template_error"}));
}

#[tokio::test]
async fn a_template_may_refuse() {
    let answer = ask(setup("{{ raise_exception('roles must alternate') }}"), json!({"messages": hi()})).await;
    assert_eq!(answer.status, 422);
    assert_eq!(answer.json(), json!({"error": "Template error: roles must alternate", "error_type": "template_error"}));
}

#[tokio::test]
async fn a_missing_variable_has_an_error_type_of_its_own() {
    let answer = ask(setup("{{ guideline.text }}"), json!({"messages": hi()})).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "missing_template_variable"));
}

#[tokio::test]
async fn a_message_that_is_none_is_refused_with_its_place() {
    for (message, reason) in [
        (json!({"content": "x"}), "missing field `role`"),
        (json!({"role": 7, "content": "x"}), "`role` must be a text"),
        (json!({"role": "user"}), "missing field `content`"),
        (
            json!({"role": "user", "content": null}),
            "may be null only beside `tool_calls`, `function_call` or `refusal`",
        ),
        (json!({"role": "assistant", "content": null, "refusal": 7}), "may be null only beside"),
        (json!({"role": "assistant", "content": [{"type": "refusal"}]}), "must have a `refusal`"),
        (json!({"role": "user", "content": 7}), "a text or a list of parts"),
        (json!({"role": "user", "content": ["x"]}), "must be an object with a `type`"),
        (json!({"role": "user", "content": [{"type": "text"}]}), "must have a `text`"),
        (
            json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}),
            "reads text only",
        ),
        (json!("x"), "map"),
    ] {
        let answer = ask(setup(TEMPLATE), json!({"messages": [hi()[0], message]})).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "validation"), "{message}");
        let error = answer.error();
        assert!(error.contains("messages[1]") && error.contains(reason), "{message}: {error}");
    }
}

#[tokio::test]
async fn a_chat_has_messages() {
    let answer = ask(setup(TEMPLATE), json!({})).await;
    assert_eq!(answer.status, 422);
    assert!(answer.error().contains("missing field `messages`"), "{}", answer.error());
}

#[tokio::test]
async fn a_chat_has_at_least_one_message_on_every_route() {
    let world = World::with(setup(TEMPLATE)).await;
    let chat = json!({"messages": [], "max_tokens": 1});
    for (path, body) in [
        ("/chat_tokenize", chat.clone()),
        ("/v1/chat/completions", chat.clone()),
        ("/invocations", chat.clone()),
        ("/vertex", json!({"instances": [chat]})),
    ] {
        let answer = world.post(path, body).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "validation"), "{path}");
        let error = &answer.json()["error"];
        let sentence = error["message"].as_str().or(error.as_str()).unwrap();
        assert!(sentence.contains("`messages` must hold at least one message"), "{path}: {error}");
        assert!(path != "/v1/chat/completions" || error["param"] == "messages", "{error}");
    }
    world.wait_until_idle().await;
}

#[tokio::test]
async fn under_the_guard_a_user_ends_no_turn() {
    let body = json!({"messages": [{"role": "user", "content": "<|end|>"}], "add_generation_prompt": false});
    for (guarded, ends) in [(false, 2), (true, 1)] {
        let answer = ask(Setup { guarded, ..setup(TEMPLATE) }, body.clone()).await.json();
        assert_eq!(answer["templated_text"], "user: <|end|><|end|>");
        let tokens = answer["tokenize_response"].as_array().unwrap();
        assert_eq!(tokens.iter().filter(|token| token["id"] == END).count(), ends, "guarded: {guarded}");
    }
}
