//! `--otlp-endpoint`: a real process, and a receiver as a collector would be.

mod harness;

use std::collections::BTreeSet;
use std::sync::mpsc;

use harness::{Headrace, get, post, post_with, text, tiny_model};
use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const BODY: &str = r#"{"inputs": "once upon", "parameters": {"max_new_tokens": 5, "ignore_eos_token": true}}"#;
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

struct Receiver(mpsc::Sender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A receiver that lives as long as its runtime, its endpoint, and what reaches it.
fn receiver() -> (tokio::runtime::Runtime, String, mpsc::Receiver<ExportTraceServiceRequest>) {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let (requests, received) = mpsc::channel();
    let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(Receiver(requests)));
    runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (runtime, endpoint, received)
}

fn router(model: &tempfile::TempDir, endpoint: &str) -> Headrace {
    Headrace::start(&[
        "router",
        "--fake-shard",
        "--hostname",
        "127.0.0.1",
        "--port",
        "0",
        "--model-id",
        text(model.path()),
        "--otlp-endpoint",
        endpoint,
        "--otlp-service-name",
        "story.router",
    ])
}

fn service(of: &ResourceSpans) -> &str {
    let resource = of.resource.as_ref().expect("a resource");
    let name = resource.attributes.iter().find(|attribute| attribute.key == "service.name").expect("a name");
    match name.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(name)) => name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_exported_as_part_of_its_callers_trace_at_the_latest_when_the_server_ends() {
    let (_runtime, endpoint, received) = receiver();
    let model = tiny_model();
    let mut router = router(&model, &endpoint);
    let address = router.address();
    let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
    assert_eq!(post_with(&address, "/generate", &[("traceparent", &traceparent)], BODY).0, 200);
    assert!(router.log().contains(&format!("trace_id={TRACE}")), "{}", router.log());
    router.signal(Signal::SIGTERM);
    assert_eq!(router.wait().code, Some(0));
    let sent = received.recv().expect("a message");
    let services: Vec<&str> = sent.resource_spans.iter().map(service).collect();
    assert_eq!(services, ["story.router", "story.shard"]);
    let spans: Vec<_> = sent.resource_spans.iter().flat_map(|of| &of.scope_spans[0].spans).collect();
    let names: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    let expected =
        ["POST /generate", "decode", "prefill", "queue", "shard decode", "shard prefill", "validation"].into();
    assert_eq!(names, expected);
    for span in spans {
        let id: String = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(id, TRACE);
    }
}

#[test]
fn an_endpoint_that_is_down_is_one_warning_and_requests_are_answered() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("http://{}", free.local_addr().expect("an address"));
    drop(free);
    let model = tiny_model();
    let mut router = router(&model, &endpoint);
    let address = router.address();
    for _ in 0..3 {
        assert_eq!(post(&address, "/generate", BODY).0, 200);
    }
    let counted = get(&address, "/metrics").1;
    assert!(counted.contains("headrace_trace_spans_total{outcome=\"exported\"} 0"), "{counted}");
    router.signal(Signal::SIGTERM);
    let ended = router.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let about = ended.stderr.lines().filter(|line| line.contains("--otlp-endpoint")).count();
    assert!(about <= 1, "{}", ended.stderr);
}

#[test]
fn an_endpoint_that_cannot_be_is_one_line_and_exit_code_2() {
    let model = tiny_model();
    let ended = router(&model, "https://collector:4317").wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error().contains("--otlp-endpoint: https://collector:4317"), "{}", ended.stderr);
}
