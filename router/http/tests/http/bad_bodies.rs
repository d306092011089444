//! Bodies that are no request: every route that takes one answers the same, with TGI's status and a JSON error.

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures::stream;
use headrace_http::Surface;
use serde_json::json;

use crate::openai::with_template;
use crate::world::{Answer, Setup, World, post};

const ROUTES: [&str; 4] = ["/generate", "/generate_stream", "/", "/tokenize"];

/// The answer of each route, which must be alike.
async fn refusals(body: impl Into<Bytes>) -> (u16, String, String) {
    let (world, body) = (World::new().await, body.into());
    let mut seen = Vec::new();
    for route in ROUTES {
        let answer = world.send(post(route, body.clone())).await;
        assert_eq!(answer.header("content-type"), "application/json", "{route}");
        seen.push((answer.status.as_u16(), answer.error_type(), answer.error()));
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "routes differ: {seen:?}");
    seen.remove(0)
}

macro_rules! refused {
    ($($name:ident: $body:expr => $status:literal $error_type:literal, $said:literal;)*) => {
        $(#[tokio::test]
        async fn $name() {
            let (status, error_type, error) = refusals($body).await;
            assert_eq!((status, error_type.as_str()), ($status, $error_type), "{error}");
            assert!(error.contains($said), "{error}");
        })*
    };
}

refused! {
    an_empty_body_is_400: "" => 400 "bad_request", "EOF";
    text_is_400: "hello" => 400 "bad_request", "line 1 column 1";
    half_an_object_is_400: r#"{"inputs": "x""# => 400 "bad_request", "EOF";
    something_after_the_object_is_400: r#"{"inputs": "x"} {}"# => 400 "bad_request", "trailing";
    invalid_utf8_is_400: &b"{\"inputs\": \"\xff\xfe\"}"[..] => 400 "bad_request", "utf-8";
    invalid_utf8_in_an_unknown_field_is_400: &b"{\"inputs\": \"x\", \"y\": \"\xff\"}"[..] => 400 "bad_request", "utf-8";
    a_lone_surrogate_is_400: r#"{"inputs": "\ud800"}"# => 400 "bad_request", "hex escape";
    nan_is_400: r#"{"inputs": "x", "parameters": {"temperature": NaN}}"# => 400 "bad_request", "JSON";
    infinity_is_400: r#"{"inputs": "x", "parameters": {"temperature": Infinity}}"# => 400 "bad_request", "JSON";
    a_number_beyond_f64_is_400: r#"{"inputs": "x", "parameters": {"temperature": 1e999}}"# => 400 "bad_request", "range";
    a_number_beyond_f32_is_422: r#"{"inputs": "x", "parameters": {"top_p": 1e39}}"# => 422 "validation", "`parameters.top_p`";
    an_array_is_422: r#"["x"]"# => 422 "validation", "expected a JSON object";
    a_string_is_422: r#""x""# => 422 "validation", "expected a JSON object";
    null_is_422: "null" => 422 "validation", "expected a JSON object";
    no_inputs_is_422: "{}" => 422 "validation", "missing field `inputs`";
    null_inputs_are_422: r#"{"inputs": null}"# => 422 "validation", "`inputs`";
    a_number_for_inputs_is_422: r#"{"inputs": 5}"# => 422 "validation", "`inputs`";
    a_list_for_inputs_is_422: r#"{"inputs": ["a", "b"]}"# => 422 "validation", "`inputs`";
    inputs_twice_is_422: r#"{"inputs": "a", "inputs": "b"}"# => 422 "validation", "duplicate field `inputs`";
    a_parameter_twice_is_422: r#"{"inputs": "a", "parameters": {"top_k": 1, "top_k": 2}}"# => 422 "validation", "duplicate field `top_k`";
    a_string_for_parameters_is_422: r#"{"inputs": "x", "parameters": "y"}"# => 422 "validation", "`parameters`";
    an_array_for_parameters_is_422: r#"{"inputs": "x", "parameters": []}"# => 422 "validation", "`parameters`";
    null_parameters_are_422: r#"{"inputs": "x", "parameters": null}"# => 422 "validation", "`parameters`";
    deep_nesting_in_inputs_is_400: format!("{{\"inputs\": {}", "[".repeat(100_000)) => 400 "bad_request", "128 levels";
    deep_nesting_in_an_unknown_field_is_400: deep_in("y", 5000) => 400 "bad_request", "128 levels";
    nesting_of_128_levels_is_400: deep_in("y", 127) => 400 "bad_request", "128 levels";
    deep_nesting_in_a_long_body_is_400: deep_in("y", 100_000) => 400 "bad_request", "128 levels";
    deep_nesting_in_a_grammar_is_400: format!(
        "{{\"inputs\": \"x\", \"parameters\": {{\"grammar\": {{\"value\": {}", "[".repeat(100_000)
    ) => 400 "bad_request", "128 levels";
    one_byte_over_the_limit_is_413: vec![b' '; 300_001] => 413 "payload_too_large", "300000 bytes";
}

/// Good JSON, with so many levels in a field.
fn deep_in(field: &str, levels: usize) -> String {
    let (open, close) = ("[".repeat(levels), "]".repeat(levels));
    format!(r#"{{"inputs": "x", "parameters": {{"max_new_tokens": 1}}, "{field}": {open}{close}}}"#)
}

#[tokio::test]
async fn nesting_below_the_limit_is_nobodys_business() {
    let world = World::new().await;
    for route in ROUTES {
        let answer = world.send(post(route, deep_in("y", 126))).await;
        assert_eq!(answer.status, 200, "{route}: {}", answer.text);
    }
}

#[tokio::test]
async fn deep_nesting_is_told_in_the_shape_of_each_route() {
    let world = World::new().await;
    for route in ["/v1/completions", "/v1/chat/completions", "/chat_tokenize", "/invocations", "/vertex"] {
        let answer = world.send(post(route, deep_in("y", 5000))).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (400, "bad_request"), "{route}");
        let error = &answer.json()["error"];
        let sentence = error["message"].as_str().or(error.as_str()).unwrap();
        assert!(sentence.contains("128 levels") && error.is_object() == route.starts_with("/v1"), "{route}: {error}");
    }
}

#[tokio::test]
async fn what_is_no_json_is_told_with_a_body_that_its_route_takes() {
    let surface = Surface { kserve: true, ..Surface::default() };
    let world = World::with(with_template(Setup { surface, ..Setup::default() })).await;
    let openai = ["/v1/completions", "/v1/chat/completions", "/chat_tokenize", "/vertex", "/invocations"];
    for route in ROUTES.into_iter().chain(openai).chain(["/v2/models/m/versions/1/infer"]) {
        let refused = world.send(post(route, "{")).await;
        assert_eq!(refused.status, 400, "{route}");
        let error = &refused.json()["error"];
        let sentence = error["message"].as_str().or(error.as_str()).unwrap();
        let example = sentence.split_once("such as ").unwrap().1.to_owned();
        let taken = world.send(post(route, example.clone())).await;
        assert_eq!(taken.status, 200, "{route}: {example}: {}", taken.text);
    }
}

#[tokio::test]
async fn a_long_wrong_value_is_not_repeated_in_full() {
    let (status, _, error) = refusals(json!({"inputs": "x", "parameters": "y".repeat(200_000)}).to_string()).await;
    assert_eq!(status, 422);
    assert!(error.len() < 400 && error.contains("expected a JSON object"), "{error}");
}

#[tokio::test]
async fn a_body_over_the_limit_that_comes_in_pieces_is_413() {
    let world = World::new().await;
    let pieces = stream::iter((0..40).map(|_| Ok::<_, std::convert::Infallible>(Bytes::from(vec![b' '; 10_000]))));
    let answer = world.send(post("/generate", Body::from_stream(pieces))).await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn a_body_at_the_limit_is_read() {
    let world = World::new().await;
    let mut body = json!({"inputs": "x", "parameters": {"max_new_tokens": 1}}).to_string();
    body.extend(std::iter::repeat_n(' ', 300_000 - body.len()));
    assert_eq!(world.send(post("/generate", body)).await.status, 200);
}

async fn with_content_type(value: Option<&str>) -> Answer {
    let mut request = Request::post("/generate");
    if let Some(value) = value {
        request = request.header("content-type", value);
    }
    let body = json!({"inputs": "x", "parameters": {"max_new_tokens": 1}}).to_string();
    World::new().await.send(request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn content_types_other_than_json_are_415() {
    for given in [None, Some("text/plain"), Some("application/jsonx"), Some("application/x-www-form-urlencoded")] {
        let answer = with_content_type(given).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_type().as_str()),
            (415, "unsupported_media_type"),
            "{given:?}"
        );
        assert!(answer.error().contains(given.unwrap_or("none")), "{}", answer.error());
    }
}

#[tokio::test]
async fn json_content_types_of_all_kinds_are_read() {
    for given in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"] {
        assert_eq!(with_content_type(Some(given)).await.status, 200, "{given}");
    }
}

#[tokio::test]
async fn unknown_names_are_ignored() {
    let world = World::new().await;
    let body = json!({"inputs": "x", "parameters": {"max_new_tokens": 1, "foo": [1]}, "bar": {"a": null}, "stream": 5});
    assert_eq!(world.post("/generate", body).await.status, 200);
}

#[tokio::test]
async fn unknown_routes_are_404_in_json() {
    let answer = World::new().await.post("/nope", json!({})).await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (404, "not_found"));
    assert!(answer.error().contains("POST /nope"), "{}", answer.error());
}

#[tokio::test]
async fn wrong_methods_are_405_in_json_and_name_the_right_one() {
    let answer = World::new().await.get("/generate").await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (405, "method_not_allowed"));
    assert_eq!(answer.header("allow"), "POST");
}
