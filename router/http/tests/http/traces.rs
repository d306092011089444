//! Each request is one trace, whatever becomes of it.

use axum::body::Body;
use axum::http::Request;
use headrace_http::Exporter;
use headrace_telemetry::{Span, SpanId, SpanKind, Trace, Value};
use serde_json::json;
use tokio::sync::mpsc;

use crate::world::{Setup, World, post, soon};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A world, and what it exports.
async fn traced() -> (World, mpsc::Receiver<Trace>) {
    let (queue, traces) = mpsc::channel(16);
    (World::with(Setup { traces: Some(Exporter::to_channel(queue)), ..Setup::default() }).await, traces)
}

fn generate(tokens: u32) -> Request<Body> {
    let body = json!({"inputs": "hello", "parameters": {"max_new_tokens": tokens, "ignore_eos_token": true}});
    post("/generate", body.to_string())
}

fn from_caller(mut request: Request<Body>, flags: &str) -> Request<Body> {
    let headers = request.headers_mut();
    headers.insert("traceparent", format!("00-{TRACE}-{CALLER}-{flags}").parse().unwrap());
    headers.append("tracestate", "a=1".parse().unwrap());
    headers.append("tracestate", "b=2".parse().unwrap());
    request
}

/// Names of spans, each with its parent's.
fn tree(trace: &Trace) -> Vec<(&str, &str)> {
    let name = |id: Option<SpanId>| {
        trace.spans.iter().find(|span| Some(span.id) == id).map_or("", |parent| parent.name.as_str())
    };
    trace.spans.iter().map(|span| (span.name.as_str(), name(span.parent))).collect()
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[tokio::test]
async fn a_request_is_one_trace_of_router_and_shard_however_many_tokens_it_has() {
    let (world, mut traces) = traced().await;
    for tokens in [2, 50] {
        assert_eq!(world.send(generate(tokens)).await.status, 200);
        let trace = soon(traces.recv()).await.unwrap();
        assert_eq!(
            tree(&trace),
            [
                ("POST /generate", ""),
                ("validation", "POST /generate"),
                ("queue", "POST /generate"),
                ("prefill", "POST /generate"),
                ("shard prefill", "prefill"),
                ("decode", "POST /generate"),
                ("shard decode", "decode"),
            ]
        );
        let [root, .., decode, shard] = &trace.spans[..] else { unreachable!() };
        assert_eq!((root.kind, decode.kind, shard.kind), (SpanKind::Server, SpanKind::Client, SpanKind::Shard));
        assert_eq!(attribute(root, "gen_ai.usage.input_tokens"), Some(&Value::Whole(5)));
        assert_eq!(attribute(root, "gen_ai.usage.output_tokens"), Some(&Value::Whole(i64::from(tokens))));
        assert_eq!(attribute(root, "gen_ai.response.finish_reasons"), Some(&text("length")));
        assert_eq!(attribute(shard, "headrace.steps"), Some(&Value::Whole(i64::from(tokens) - 1)));
        assert!(root.error.is_none() && root.parent.is_none());
    }
}

#[tokio::test]
async fn parts_of_a_request_follow_each_other_within_it() {
    let (world, mut traces) = traced().await;
    world.send(generate(4)).await;
    let spans = soon(traces.recv()).await.unwrap().spans;
    let find = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (root, order) = (&spans[0], ["validation", "queue", "prefill", "decode"].map(find));
    assert_eq!(order[0].began, root.began);
    for pair in order.windows(2) {
        assert_eq!(pair[0].ended, pair[1].began, "{pair:?}");
    }
    assert!(spans.iter().all(|span| span.began <= span.ended && span.ended <= root.ended), "{spans:?}");
}

#[tokio::test]
async fn a_callers_trace_goes_on_and_its_state_is_passed_on() {
    let (world, mut traces) = traced().await;
    world.send(from_caller(generate(2), "01")).await;
    let trace = soon(traces.recv()).await.unwrap();
    assert_eq!((trace.id.to_string().as_str(), trace.state.as_str()), (TRACE, "a=1,b=2"));
    assert_eq!(trace.spans[0].parent.map(|caller| caller.to_string()).as_deref(), Some(CALLER));
}

#[tokio::test]
async fn a_trace_that_its_caller_does_not_record_is_not_exported() {
    let (world, mut traces) = traced().await;
    world.send(from_caller(generate(2), "00")).await;
    world.send(generate(3)).await;
    assert_ne!(soon(traces.recv()).await.unwrap().id.to_string(), TRACE);
}

#[tokio::test]
async fn a_request_that_is_refused_is_a_trace_that_says_how() {
    let (world, mut traces) = traced().await;
    world.post("/generate", json!({"inputs": ""})).await;
    let trace = soon(traces.recv()).await.unwrap();
    assert_eq!(tree(&trace), [("POST /generate", ""), ("validation", "POST /generate")]);
    assert_eq!(trace.spans[0].error.as_deref(), Some("validation"));
    assert_eq!(attribute(&trace.spans[0], "http.response.status_code"), Some(&Value::Whole(422)));
}

#[tokio::test]
async fn a_request_whose_client_leaves_is_traced_up_to_then() {
    let (world, mut traces) = traced().await;
    let body = json!({"inputs": "hello", "parameters": {"max_new_tokens": 100, "ignore_eos_token": true}});
    world.handle.stall();
    drop(world.open(post("/generate_stream", body.to_string())).await);
    let trace = soon(traces.recv()).await.unwrap();
    let names: Vec<&str> = trace.spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["POST /generate_stream", "validation", "queue", "prefill"]);
    assert_eq!(trace.spans[0].error.as_deref(), Some("dropped"));
}

#[tokio::test]
async fn each_choice_of_a_request_has_its_own_part_of_the_trace() {
    let (world, mut traces) = traced().await;
    let parameters = json!({"max_new_tokens": 3, "best_of": 2, "do_sample": true, "ignore_eos_token": true});
    world.post("/generate", json!({"inputs": "hello", "parameters": parameters})).await;
    let trace = soon(traces.recv()).await.unwrap();
    let choices = trace.spans.iter().filter(|span| span.name == "decode");
    let choices: Vec<_> = choices.map(|span| attribute(span, "headrace.choice").cloned()).collect();
    assert_eq!(choices, [Some(Value::Whole(0)), Some(Value::Whole(1))]);
}
