//! Paths and methods that are not there, and those that HTTP has beside GET and POST.

use axum::body::Body;
use axum::http::Request;

use crate::world::{Answer, World};

async fn ask(method: &str, path: &str) -> Answer {
    World::new().await.send(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn what_is_not_there_is_404_in_json() {
    for path in ["/nowhere", "/generate/", "/Generate", "//generate", "/v3/models", "/docs/nothing.js", "/docs/%ff"] {
        let answer = ask("GET", path).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (404, "not_found"), "{path}");
        assert!(answer.error().contains(&format!("GET {path}")), "{}", answer.error());
    }
}

#[tokio::test]
async fn a_wrong_method_is_405_in_json_and_says_which_are_right() {
    for (method, path, allow) in [
        ("GET", "/generate", "POST"),
        ("POST", "/health", "GET,HEAD"),
        ("DELETE", "/", "GET,HEAD,POST"),
        ("PUT", "/info", "GET,HEAD"),
        ("TRACE", "/generate", "POST"),
    ] {
        let answer = ask(method, path).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (405, "method_not_allowed"), "{path}");
        let mut allowed: Vec<&str> = answer.header("allow").split(',').collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow, "{path}");
    }
}

#[tokio::test]
async fn options_says_which_methods_a_route_has() {
    let answer = ask("OPTIONS", "/generate").await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
    assert_eq!(answer.header("allow"), "POST");
    assert_eq!(ask("OPTIONS", "/nowhere").await.status, 404);
}

#[tokio::test]
async fn head_is_get_without_a_body() {
    for path in ["/health", "/info", "/docs/", "/api-doc/openapi.json"] {
        let (head, get) = (ask("HEAD", path).await, ask("GET", path).await);
        assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
        assert_eq!(head.headers.get("content-type"), get.headers.get("content-type"), "{path}");
    }
}

#[tokio::test]
async fn a_name_that_is_no_text_is_404_on_openais_routes_too() {
    let answer = ask("GET", "/v1/models/%ff").await;
    assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (404, "not_found"));
}
