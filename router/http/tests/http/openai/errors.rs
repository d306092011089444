//! Errors of `/v1` routes: OpenAI's object, TGI's words and statuses.

use axum::http::Request;
use serde_json::{Value, json};

use super::{chat, chat_world, completion};
use crate::world::{Setup, World, post};

#[tokio::test]
async fn a_bad_field_is_422_with_its_name() {
    let world = World::new().await;
    for (body, param) in [
        (json!({"temperature": -1}), "temperature"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": 0}), "top_p"),
        (json!({"top_p": 1.5}), "top_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"min_p": 2}), "min_p"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"frequency_penalty": 9}), "frequency_penalty"),
        (json!({"presence_penalty": -2.5}), "presence_penalty"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": 9000}), "max_tokens"),
        (json!({"max_tokens": "many"}), "max_tokens"),
        (json!({"stop": ["a", "b", "c", "d", "e"]}), "stop"),
        (json!({"stop": 5}), "stop"),
        (json!({"stop": ["a", 5]}), "stop"),
        (json!({"logit_bias": {"999": 1}}), "logit_bias"),
        (json!({"logit_bias": {"a": 1}}), "logit_bias"),
        (json!({"logit_bias": {"1": 101}}), "logit_bias"),
        (json!({"logit_bias": "5"}), "logit_bias"),
        (json!({"stream_options": true}), "stream_options"),
        (json!({"stream_options": {"include_usage": 1}}), "stream_options.include_usage"),
        (json!({"priority": 101}), "priority"),
        (json!({"prompt": ""}), "prompt"),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": [[]]}), "prompt"),
        (json!({"prompt": ["a", ""]}), "prompt"),
        (json!({"prompt": [258]}), "prompt"),
        (json!({"prompt": {"text": "a"}}), "prompt"),
        (json!({"prompt": "x".repeat(101), "max_tokens": 1}), "prompt"),
        (json!({"truncate_prompt_tokens": 0}), "truncate_prompt_tokens"),
        (json!({"cache_salt": ""}), "cache_salt"),
        (json!({"echo": "yes"}), "echo"),
    ] {
        let answer = world.post("/v1/completions", completion(body.clone())).await;
        assert_eq!(answer.status, 422, "{body}: {}", answer.text);
        let error = answer.json();
        assert_eq!(
            (&error["error_type"], &error["error"]["type"]),
            (&json!("validation"), &json!("invalid_request_error"))
        );
        let told = error["error"]["param"].as_str().unwrap_or_default();
        assert!(told.starts_with(param), "{body}: {error}");
        assert!(error["error"]["message"].as_str().unwrap().starts_with("Input validation error: "), "{error}");
    }
}

#[tokio::test]
async fn a_field_that_is_missing_is_named() {
    let world = chat_world().await;
    for (path, param) in [("/v1/completions", "prompt"), ("/v1/chat/completions", "messages")] {
        let answer = world.post(path, json!({"max_tokens": 3})).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["param"]), (422, &json!(param)));
    }
}

#[tokio::test]
async fn a_context_that_is_exceeded_has_openais_code_and_tgis_sentence() {
    let world = World::new().await;
    let error = world.post("/v1/completions", completion(json!({"max_tokens": 9000}))).await.json()["error"].clone();
    assert_eq!(error["code"], "context_length_exceeded");
    assert!(
        error["message"].as_str().unwrap().contains("`inputs` tokens + `max_new_tokens` must be <= 128"),
        "{error}"
    );
}

#[tokio::test]
async fn what_tgi_refuses_by_a_name_of_its_own_keeps_it() {
    let world = World::new().await;
    for (body, error_type, param) in [
        (json!({"suffix": "x"}), "suffix not supported", "suffix"),
        (json!({"prompt": ["a", "b", "c", "d", "e"]}), "batch size exceeded", "prompt"),
    ] {
        let answer = world.post("/v1/completions", completion(body)).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, error_type));
        assert_eq!(answer.json()["error"]["param"], param);
    }
}

#[tokio::test]
async fn what_comes_later_is_refused_and_says_so() {
    let world = chat_world().await;
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
    for (body, error_type, param) in [
        (json!({"response_format": {"type": "json_object"}}), "validation", "response_format"),
        (json!({"guided_regex": "a+"}), "validation", "guided_regex"),
        (json!({"tools": tools}), "tool_error", "tools"),
        (json!({"tools": tools, "tool_choice": "required"}), "tool_error", "tools"),
        (
            json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "g"}}}),
            "tool_error",
            "tool_choice",
        ),
        (json!({"tools": tools, "response_format": {"type": "json_object"}}), "tool_error", "tools"),
    ] {
        let answer = world.post("/v1/chat/completions", chat(body.clone())).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, error_type), "{body}");
        assert_eq!(answer.json()["error"]["param"], param, "{body}");
    }
    let none = world.post("/v1/chat/completions", chat(json!({"tools": tools, "tool_choice": "none"}))).await;
    assert_eq!(none.status, 200, "{}", none.text);
}

#[tokio::test]
async fn a_body_that_is_no_object_is_told_so_and_no_field_is_named() {
    let world = chat_world().await;
    let bodies = ["1", "-1.5", "true", "null", r#""x""#, r#""a `model` b""#, "[]", "[{}]", r#"["`prompt`"]"#];
    for path in ["/v1/completions", "/v1/chat/completions"] {
        for body in bodies {
            let answer = world.send(post(path, body)).await;
            let error = &answer.json()["error"];
            assert_eq!(
                (answer.status.as_u16(), error.get("param")),
                (422, Some(&Value::Null)),
                "{path} {body}: {error}"
            );
            assert!(error["message"].as_str().unwrap().contains("expected a JSON object"), "{path} {body}: {error}");
        }
    }
    for path in ["/", "/generate", "/generate_stream", "/tokenize", "/chat_tokenize", "/invocations", "/vertex"] {
        for body in bodies {
            let answer = world.send(post(path, body)).await;
            assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "validation"), "{path} {body}");
            assert!(
                answer.error().contains("`body`") && answer.error().contains("expected a JSON object"),
                "{path} {body}"
            );
        }
    }
}

#[tokio::test]
async fn a_field_that_is_there_twice_is_named() {
    let answer = World::new().await.send(post("/v1/completions", r#"{"prompt": "`x`", "prompt": "b"}"#)).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["param"]), (422, &json!("prompt")), "{}", answer.text);
}

#[tokio::test]
async fn whatever_refuses_a_v1_request_does_it_in_this_shape() {
    let mut setup = Setup::default();
    setup.limits.payload_limit = 1000;
    let world = World::with(setup).await;
    let plain = Request::post("/v1/completions").header("content-type", "text/plain");
    for (request, status, error_type) in [
        (post("/v1/nope", "{}"), 404, "not_found"),
        (Request::get("/v1/completions").body("".into()).unwrap(), 405, "method_not_allowed"),
        (post("/v1/completions", "{"), 400, "bad_request"),
        (plain.body("x".into()).unwrap(), 415, "unsupported_media_type"),
        (
            post("/v1/completions", completion(json!({"prompt": "x".repeat(2000)})).to_string()),
            413,
            "payload_too_large",
        ),
    ] {
        let answer = world.send(request).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (status, error_type));
        let error = &answer.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{}", answer.text);
        assert_eq!((error.get("param"), error.get("code")), (Some(&Value::Null), Some(&Value::Null)));
    }
}

#[tokio::test]
async fn an_overloaded_server_says_when_to_come_back() {
    let mut setup = Setup::default();
    setup.limits.max_concurrent_requests = 1;
    let world = World::with(setup).await;
    world.handle.stall();
    let _running = world.open(post("/generate_stream", json!({"inputs": "x"}).to_string())).await;
    for stream in [false, true] {
        let answer = world.post("/v1/completions", completion(json!({"stream": stream}))).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (429, "overloaded"));
        assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
        answer.header("retry-after").parse::<u64>().unwrap();
    }
}

#[tokio::test]
async fn native_routes_keep_their_plain_sentence() {
    let answer = World::new().await.post("/generate", json!({"inputs": ""})).await;
    assert!(answer.json()["error"].is_string(), "{}", answer.text);
}
