//! Traces arrive at an OTLP receiver, and one that is down costs nobody anything.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::time::{Duration, SystemTime};

use headrace_telemetry::{Exporter, ExporterTask, OtlpConfig, Span, SpanId, SpanKind, Trace, TraceId, Value};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind as OtlpKind;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const PATIENCE: Duration = Duration::from_secs(30);

/// What a collector would be told.
struct Receiver {
    requests: mpsc::UnboundedSender<ExportTraceServiceRequest>,
    rejected_spans: i64,
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.requests.send(request.into_inner()).map_err(|_| Status::unavailable("the test is over"))?;
        let partial = ExportTracePartialSuccess { rejected_spans: self.rejected_spans, ..Default::default() };
        Ok(Response::new(ExportTraceServiceResponse { partial_success: Some(partial) }))
    }
}

/// A receiver's endpoint and what reaches it.
async fn receiver(rejected_spans: i64) -> (String, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (requests, received) = mpsc::unbounded_channel();
    let service = TraceServiceServer::new(Receiver { requests, rejected_spans });
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (endpoint, received)
}

fn config(endpoint: &str) -> OtlpConfig {
    OtlpConfig { endpoint: endpoint.to_owned(), service_name: "chat.router".into(), version: "1.2.3".into() }
}

/// An exporter and what it counts.
fn exporter(endpoint: &str) -> (Exporter, ExporterTask, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let counted = recorder.handle();
    let (exporter, task) = metrics::with_local_recorder(&recorder, || Exporter::start(config(endpoint))).unwrap();
    (exporter, task, counted)
}

fn spans(counted: &PrometheusHandle, outcome: &str) -> u64 {
    let shown = counted.render();
    let start = format!("headrace_trace_spans_total{{outcome=\"{outcome}\"}} ");
    shown.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
}

fn at(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

fn span(id: u8, parent: Option<u8>, kind: SpanKind) -> Span {
    Span {
        id: SpanId([id; 8]),
        parent: parent.map(|parent| SpanId([parent; 8])),
        name: format!("span {id}"),
        kind,
        began: at(1_000),
        ended: at(1_500),
        attributes: vec![("tokens", Value::Whole(7)), ("route", Value::Text("/generate".into()))],
        error: (id == 3).then(|| "generation".to_owned()),
    }
}

fn trace() -> Trace {
    let spans =
        vec![span(1, Some(9), SpanKind::Server), span(2, Some(1), SpanKind::Client), span(3, Some(2), SpanKind::Shard)];
    Trace { id: TraceId([5; 16]), state: "vendor=1".into(), spans }
}

#[tokio::test]
async fn router_and_shard_are_two_services_of_one_trace() {
    let (endpoint, mut received) = receiver(0).await;
    let (exporter, task, counted) = exporter(&endpoint);
    exporter.send(trace());
    task.finish(PATIENCE).await;
    let sent = received.recv().await.unwrap();
    let [router, shard] = &sent.resource_spans[..] else { panic!("not two services: {sent:?}") };
    let name = |of: &opentelemetry_proto::tonic::trace::v1::ResourceSpans| {
        let attribute = of.resource.as_ref().unwrap().attributes.iter().find(|pair| pair.key == "service.name");
        match attribute.unwrap().value.as_ref().unwrap().value.as_ref().unwrap() {
            Any::StringValue(name) => name.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((name(router), name(shard)), ("chat.router".to_owned(), "chat.shard".to_owned()));
    let spans: Vec<_> = [router, shard].iter().flat_map(|of| &of.scope_spans[0].spans).collect();
    let shown: Vec<_> = spans.iter().map(|span| (span.span_id[0], span.parent_span_id[0], span.kind())).collect();
    assert_eq!(shown, [(1, 9, OtlpKind::Server), (2, 1, OtlpKind::Client), (3, 2, OtlpKind::Server)]);
    for span in spans {
        assert_eq!((&span.trace_id[..], span.trace_state.as_str()), (&[5; 16][..], "vendor=1"));
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (1_000_000_000, 1_500_000_000));
        assert_eq!(span.attributes[0].value.as_ref().unwrap().value, Some(Any::IntValue(7)));
        assert_eq!(span.status.is_some(), span.span_id[0] == 3);
    }
    assert_eq!(self::spans(&counted, "exported"), 3);
}

#[tokio::test]
async fn traces_that_wait_together_are_one_message() {
    let (endpoint, mut received) = receiver(0).await;
    let (exporter, task, _) = exporter(&endpoint);
    (0..5).for_each(|_| exporter.send(trace()));
    task.finish(PATIENCE).await;
    assert_eq!(received.recv().await.unwrap().resource_spans[1].scope_spans[0].spans.len(), 5);
}

#[tokio::test]
async fn an_endpoint_that_is_down_loses_spans_and_counts_them() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let (exporter, task, counted) = exporter(&endpoint);
    exporter.send(trace());
    task.finish(PATIENCE).await;
    assert_eq!((spans(&counted, "exported"), spans(&counted, "export_failed")), (0, 3));
}

#[tokio::test]
async fn what_the_receiver_refuses_counts_as_failed() {
    let (endpoint, _received) = receiver(2).await;
    let (exporter, task, counted) = exporter(&endpoint);
    exporter.send(trace());
    task.finish(PATIENCE).await;
    assert_eq!((spans(&counted, "exported"), spans(&counted, "export_failed")), (1, 2));
}

/// On this runtime the task that sends cannot run before the test waits: the queue only fills.
#[tokio::test]
async fn a_full_queue_drops_traces_at_once_and_counts_them() {
    let (exporter, _task, counted) = exporter("http://127.0.0.1:9");
    (0..2048).for_each(|_| exporter.send(trace()));
    assert_eq!(spans(&counted, "queue_full"), 0);
    exporter.send(trace());
    assert_eq!(spans(&counted, "queue_full"), 3);
}

#[test]
fn an_endpoint_that_cannot_be_is_refused_with_what_to_write() {
    for (endpoint, reason) in
        [("https://collector:4317", "TLS"), ("collector:4317", "http://"), ("", "http://"), ("http://", "http://")]
    {
        let error = config(endpoint).check().unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("write http://HOST:PORT"), "{error}");
    }
    config("http://collector:4317").check().unwrap();
}
