//! The OpenAPI document and who shows it.

use axum::body::Body;
use axum::http::Request;

use headrace_http::{ApiKeys, Surface};

use crate::world::{Setup, World};

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn the_document_is_served_as_it_is_printed() {
    let surface = Surface { kserve: true, ..Surface::default() };
    let answer = World::with(Setup { surface, ..Setup::default() }).await.get("/api-doc/openapi.json").await;
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
        ("get", "/live"),
    ] {
        assert!(document["paths"][path][method]["responses"]["200"].is_object(), "{method} {path}");
    }
    for name in
        ["GenerateRequest", "GenerateParameters", "GenerateResponse", "Details", "StreamResponse", "Info", "LiveSample"]
    {
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}

#[tokio::test]
async fn what_is_not_json_is_listed_as_what_it_is() {
    let document = World::new().await.get("/api-doc/openapi.json").await.json();
    let types = |path: &str| document["paths"][path]["get"]["responses"]["200"]["content"].as_object().unwrap().clone();
    assert!(types("/").contains_key("text/html") && types("/live").contains_key("text/event-stream"));
    assert!(document["paths"]["/live"]["get"]["responses"]["429"].is_object());
}

#[tokio::test]
async fn a_chat_lists_what_clients_send_whether_it_is_read_or_refused() {
    let document = World::new().await.get("/api-doc/openapi.json").await.json();
    let schemas = &document["components"]["schemas"];
    let parts = schemas["ChatRequest"]["allOf"].as_array().unwrap();
    let named = parts.iter().filter_map(|part| part["$ref"].as_str()?.rsplit('/').next());
    let fields: Vec<&String> = named.flat_map(|name| schemas[name]["properties"].as_object().unwrap().keys()).collect();
    for field in ["messages", "tools", "response_format", "grammar", "metadata", "user", "service_tier"] {
        assert!(fields.iter().any(|known| *known == field), "{field} is not in {fields:?}");
    }
    assert_eq!(schemas["ChatInput"]["properties"]["messages"]["minItems"], 1);
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

#[tokio::test]
async fn the_page_and_all_that_it_loads_are_ours() {
    let world = World::new().await;
    let moved = world.get("/docs").await;
    assert_eq!((moved.status.as_u16(), moved.header("location")), (307, "docs/"));
    let page = world.get("/docs/").await;
    assert!(page.header("content-type").starts_with("text/html"), "{page:?}");
    assert!(!page.text.contains("://"), "{}", page.text);
    let loaded: Vec<&str> = ["src=\"", "href=\""]
        .into_iter()
        .flat_map(|start| page.text.split(start).skip(1).filter_map(|rest| rest.split('"').next()))
        .collect();
    assert!(loaded.len() > 3, "{loaded:?}");
    for file in loaded {
        let answer = world.open(get(&format!("/docs/{}", file.trim_start_matches("./")))).await;
        assert_eq!(answer.status(), 200, "{file}");
    }
}

#[tokio::test]
async fn the_page_shows_our_document_and_asks_nobody_about_it() {
    let script = World::new().await.get("/docs/swagger-initializer.js").await.text;
    assert!(script.contains("../api-doc/openapi.json"), "{script}");
    assert!(script.contains(r#""validatorUrl": "none""#), "{script}");
}

#[tokio::test]
async fn parts_of_a_path_are_named_as_openapi_names_them() {
    let document = World::new().await.get("/api-doc/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap();
    assert!(
        paths.contains_key("/v1/models/{id}") && paths.keys().all(|path| !path.contains('*')),
        "{:?}",
        paths.keys()
    );
}

#[tokio::test]
async fn the_document_shows_only_routes_that_are_there() {
    let document = World::new().await.get("/api-doc/openapi.json").await.json();
    assert!(document["paths"].as_object().unwrap().keys().all(|path| !path.starts_with("/v2")));
}

#[tokio::test]
async fn a_server_with_keys_says_which_routes_ask_for_one() {
    let surface = Surface { api_keys: ApiKeys::new(["a"]), ..Surface::default() };
    let world = World::with(Setup { surface, ..Setup::default() }).await;
    let document = world.get("/api-doc/openapi.json").await.json();
    assert_eq!(document["paths"]["/generate"]["post"]["security"], serde_json::json!([{"api_key": []}]));
    assert!(document["paths"]["/info"]["get"]["security"].is_null());
    assert_eq!(document["components"]["securitySchemes"]["api_key"]["scheme"], "bearer");
}
