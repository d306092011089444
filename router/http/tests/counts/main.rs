//! What the metrics count of requests: each that wants to generate once, and how it ended under one label. In a process of
//! its own, as a process has one recorder.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

#[path = "../http/tokenizer.rs"]
#[allow(dead_code, reason = "shared")]
mod tokenizer;
#[path = "../http/world.rs"]
#[allow(dead_code, reason = "shared")]
mod world;

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use futures::stream;
use headrace_http::{ApiKeys, Front, Surface, openapi_json};
use headrace_text::chat::{ChatTemplates, DEFAULT};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tower::ServiceExt;

use crate::world::{Answer, Setup, World, post};

const GENERATING: [&str; 8] = [
    "/",
    "/generate",
    "/generate_stream",
    "/v1/completions",
    "/v1/chat/completions",
    "/invocations",
    "/vertex",
    "/v2/models/m/versions/1/infer",
];

/// Tests of this process take turns.
async fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

fn setup() -> Setup {
    let sources = [(DEFAULT.to_owned(), "{{ messages[0].content }}".to_owned())].into();
    let chat_templates = ChatTemplates::parse(&sources, serde_json::Map::new());
    Setup { chat_templates, surface: Surface { kserve: true, ..Surface::default() }, ..Setup::default() }
}

/// What a route takes, asking for `tokens`.
fn body(path: &str, tokens: u32) -> Value {
    let parameters = json!({"max_new_tokens": tokens});
    match path {
        "/v1/completions" => json!({"prompt": "Hello", "max_tokens": tokens}),
        "/v1/chat/completions" => json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": tokens}),
        "/vertex" => json!({"instances": [{"inputs": "Hello", "parameters": parameters}]}),
        _ if path.starts_with("/v2") => {
            json!({"inputs": [{"name": "a", "data": ["Hello"]}], "parameters": parameters})
        }
        _ => json!({"inputs": "Hello", "parameters": parameters}),
    }
}

type Counts = BTreeMap<String, u64>;

async fn counts(world: &World) -> Counts {
    let counted = |line: &&str| {
        let names = ["tgi_request_count", "tgi_request_success", "tgi_request_failure", "headrace_rejections_total"];
        names.iter().any(|name| line.starts_with(name)) || line.starts_with("headrace_request_duration_seconds_count")
    };
    let shown = world.get("/metrics").await.text;
    let series = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    shown.lines().filter(counted).filter_map(series).collect()
}

/// What was counted since `before`. No series may be new: all are in the table, and there from the start.
async fn since(before: &Counts, world: &World) -> Counts {
    let after = counts(world).await;
    assert!(after.keys().eq(before.keys()), "{before:?}\n{after:?}");
    let grown = after.into_iter().map(|(name, count)| (name.clone(), count - before[&name]));
    grown.filter(|(_, count)| *count > 0).collect()
}

/// Of so many requests that all were refused for this.
fn refused(times: u64, err: &str) -> Counts {
    [
        ("tgi_request_count".to_owned(), times),
        (format!("tgi_request_failure{{err=\"{err}\"}}"), times),
        ("headrace_request_duration_seconds_count{outcome=\"refused\"}".to_owned(), times),
    ]
    .into()
}

fn rejected(mut counts: Counts, cause: &str) -> Counts {
    counts.insert(format!("headrace_rejections_total{{cause=\"{cause}\"}}"), 1);
    counts
}

#[track_caller]
fn assert_status(answer: &Answer, status: u16, about: &str) {
    assert_eq!(answer.status.as_u16(), status, "{about}: {}", answer.text);
}

#[tokio::test]
async fn these_are_all_the_routes_that_generate() {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut posts: Vec<&str> =
        paths.iter().filter(|(_, item)| item.get("post").is_some()).map(|(path, _)| path.as_str()).collect();
    posts.retain(|path| !["/tokenize", "/chat_tokenize"].contains(path));
    let mut generating = GENERATING.map(|path| match path.starts_with("/v2") {
        true => "/v2/models/{model_name}/versions/{model_version}/infer",
        false => path,
    });
    posts.sort_unstable();
    generating.sort_unstable();
    assert_eq!(posts, generating);
}

#[tokio::test]
async fn an_answer_is_a_success_and_no_failure() {
    let _turn = alone().await;
    let world = World::with(setup()).await;
    for path in GENERATING {
        let before = counts(&world).await;
        assert_status(&world.post(path, body(path, 2)).await, 200, path);
        let success = "headrace_request_duration_seconds_count{outcome=\"success\"}";
        let expected = ["tgi_request_count", "tgi_request_success", success].map(|name| (name.to_owned(), 1)).into();
        assert_eq!(since(&before, &world).await, expected, "{path}");
    }
}

#[tokio::test]
async fn what_is_refused_before_its_body_is_understood_is_counted_once_under_one_label() {
    let _turn = alone().await;
    let mut setup = setup();
    setup.surface.api_keys = ApiKeys::new(["key"]);
    setup.limits.payload_limit = 1000;
    let world = World::with(setup).await;
    let headers = |path: &str, headers: &[(&str, &str)], sent: String| {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::from(sent)).unwrap()
    };
    let (key, json_type) = (("authorization", "Bearer key"), ("content-type", "application/json"));
    for path in GENERATING {
        let good = body(path, 2).to_string();
        let sent = |sent: &str| headers(path, &[key, json_type], sent.to_owned());
        let wrong_types = r#"{"inputs": 5, "messages": 5, "prompt": 5, "instances": 5}"#;
        for (request, status, err) in [
            (sent(&"x".repeat(1001)), 413, "payload_too_large"),
            (sent("{"), 400, "bad_request"),
            (sent(""), 400, "bad_request"),
            (sent(&"[".repeat(200)), 400, "bad_request"),
            (sent("1"), 422, "validation"),
            (sent("{}"), 422, "validation"),
            (sent(wrong_types), 422, "validation"),
            (headers(path, &[key], good.clone()), 415, "unsupported_media_type"),
            (headers(path, &[key, ("content-type", "text/plain")], good.clone()), 415, "unsupported_media_type"),
            (
                headers(path, &[key, json_type, ("content-encoding", "zstd")], good.clone()),
                415,
                "unsupported_media_type",
            ),
            (headers(path, &[key, json_type, ("x-priority", "1000")], good.clone()), 422, "validation"),
            (headers(path, &[json_type], good.clone()), 401, "unauthorized"),
            (headers(path, &[json_type, ("authorization", "Bearer no")], "{".to_owned()), 401, "unauthorized"),
        ] {
            let before = counts(&world).await;
            let about = format!("{path} {request:?}");
            assert_status(&world.send(request).await, status, &about);
            assert_eq!(since(&before, &world).await, refused(1, err), "{about}");
        }
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_is_counted() {
    let _turn = alone().await;
    let world = World::with(setup()).await;
    for path in GENERATING {
        let before = counts(&world).await;
        tokio::time::pause();
        let never = Body::from_stream(stream::pending::<Result<&'static str, std::convert::Infallible>>());
        assert_status(&world.send(post(path, never)).await, 408, path);
        tokio::time::resume();
        assert_eq!(since(&before, &world).await, refused(1, "request_timeout"), "{path}");
    }
}

#[tokio::test]
async fn what_is_refused_later_is_counted_once_too() {
    let _turn = alone().await;
    let mut setup = setup();
    setup.limits.max_concurrent_requests = 1;
    setup.served_model_names = vec!["name".into()];
    let world = World::with(setup).await;
    for path in GENERATING {
        let before = counts(&world).await;
        world.post(path, body(path, 1000)).await;
        assert_eq!(since(&before, &world).await, refused(1, "validation"), "{path}");
    }
    for path in ["/v1/completions", "/v1/chat/completions"] {
        let before = counts(&world).await;
        let mut other = body(path, 2);
        other["model"] = json!("other");
        assert_status(&world.post(path, other).await, 404, path);
        assert_eq!(since(&before, &world).await, refused(1, "not_found"), "{path}");
    }
    world.handle.stall();
    let running = world.open(post("/generate_stream", body("/generate_stream", 2).to_string())).await;
    for path in GENERATING {
        let before = counts(&world).await;
        world.post(path, body(path, 2)).await;
        assert_eq!(since(&before, &world).await, rejected(refused(1, "overloaded"), "requests"), "{path}");
    }
    world.handle.resume();
    drop(running);
    world.wait_until_idle().await;
    world.engine.drain();
    for path in GENERATING {
        let before = counts(&world).await;
        assert_status(&world.post(path, body(path, 2)).await, 503, path);
        assert_eq!(since(&before, &world).await, rejected(refused(1, "shutting_down"), "shutting_down"), "{path}");
    }
}

#[tokio::test]
async fn each_instance_is_a_request_and_one_that_fails_fails_all_for_its_reason() {
    let _turn = alone().await;
    let world = World::with(setup()).await;
    world.handle.stall();
    let instance = |tokens: u32| json!({"inputs": "Hello", "parameters": {"max_new_tokens": tokens}});
    let before = counts(&world).await;
    let instances = json!({"instances": [instance(2), instance(1000), instance(2)]});
    assert_status(&world.post("/vertex", instances).await, 422, "the second one");
    assert_eq!(since(&before, &world).await, refused(3, "validation"));
    let before = counts(&world).await;
    assert_status(&world.post("/vertex", json!({"instances": []})).await, 422, "none");
    assert_eq!(since(&before, &world).await, refused(1, "validation"));
    world.handle.resume();
    world.wait_until_idle().await;
}

#[tokio::test]
async fn what_does_not_want_to_generate_is_not_counted() {
    let _turn = alone().await;
    let mut setup = setup();
    setup.surface.api_keys = ApiKeys::new(["key"]);
    let world = World::with(setup).await;
    let keyed = |path: &str, sent: &str| {
        let mut request = post(path, sent.to_owned());
        request.headers_mut().insert("authorization", "Bearer key".parse().unwrap());
        request
    };
    let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    for (request, status) in [
        (get("/generate"), 405),
        (get("/nowhere"), 404),
        (get("/v1/nothing"), 404),
        (get("/"), 200),
        (get("/health"), 200),
        (get("/live"), 401),
        (keyed("/nowhere", "{}"), 404),
        (post("/tokenize", "{}"), 401),
        (keyed("/tokenize", "{"), 400),
        (keyed("/tokenize", r#"{"inputs": "x"}"#), 200),
        (keyed("/chat_tokenize", r#"{"messages": []}"#), 422),
    ] {
        let before = counts(&world).await;
        let about = format!("{request:?}");
        assert_status(&world.send(request).await, status, &about);
        assert_eq!(since(&before, &world).await, Counts::new(), "{about}");
    }
}

/// While a model loads there are no metrics: what was refused then is counted as soon as there are.
#[tokio::test]
async fn what_came_while_the_model_loaded_is_counted_when_it_is_loaded() {
    let _turn = alone().await;
    let world = World::with(setup()).await;
    let front = Front::new("loading weights");
    let router = front.router();
    let ask = async |request: Request<Body>| router.clone().oneshot(request).await.unwrap().status().as_u16();
    let before = counts(&world).await;
    for path in GENERATING {
        assert_eq!(ask(post(path, body(path, 2).to_string())).await, 503, "{path}");
    }
    for request in [post("/tokenize", "{}"), post("/nowhere", "{}"), Request::get("/").body(Body::empty()).unwrap()] {
        assert_eq!(ask(request).await, 503);
    }
    assert_eq!(since(&before, &world).await, Counts::new(), "nobody could have recorded it");
    front.open(world.router.clone());
    assert_eq!(since(&before, &world).await, refused(GENERATING.len() as u64, "loading"));
    assert_eq!(ask(post("/generate", body("/generate", 2).to_string())).await, 200);
    front.open(world.router.clone());
    let failures = since(&before, &world).await.into_iter().filter(|(name, _)| name.starts_with("tgi_request_failure"));
    assert_eq!(failures.map(|(_, count)| count).sum::<u64>(), GENERATING.len() as u64, "once, however often it opens");
}
