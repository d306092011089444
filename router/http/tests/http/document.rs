//! The OpenAPI document and who shows it.

use crate::world::World;

#[tokio::test]
async fn the_document_is_served_as_it_is_printed() {
    let answer = World::new().await.get("/api-doc/openapi.json").await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/json"));
    assert_eq!(answer.text, headrace_http::openapi_json());
}

#[tokio::test]
async fn every_native_route_is_in_the_document_and_under_tgis_names() {
    let document = World::new().await.get("/api-doc/openapi.json").await.json();
    for (method, path) in [
        ("post", "/"),
        ("get", "/"),
        ("post", "/generate"),
        ("post", "/generate_stream"),
        ("post", "/tokenize"),
        ("get", "/health"),
        ("get", "/ping"),
        ("get", "/info"),
        ("get", "/metrics"),
    ] {
        assert!(document["paths"][path][method]["responses"]["200"].is_object(), "{method} {path}");
    }
    for name in ["GenerateRequest", "GenerateParameters", "GenerateResponse", "Details", "StreamResponse", "Info"] {
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}

#[tokio::test]
async fn what_is_always_there_is_required_and_what_may_be_null_says_so() {
    let document = World::new().await.get("/api-doc/openapi.json").await.json();
    let event = &document["components"]["schemas"]["StreamResponse"];
    let required = ["index", "token", "generated_text", "details"];
    assert_eq!(event["required"], serde_json::json!(required));
    assert_eq!(event["properties"]["generated_text"]["type"], serde_json::json!(["string", "null"]));
    assert!(document["components"]["schemas"]["GenerateResponse"]["properties"]["details"]["$ref"].is_string());
}
