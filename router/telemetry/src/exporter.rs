//! Sends traces to an OTLP endpoint, and never makes anybody wait for it.
//!
//! Finished traces wait in a bounded queue; one task sends them in batches. What finds the queue full, and what the
//! endpoint does not take after a few tries, is dropped and counted.

use std::time::Duration;

use metrics::Counter;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::table;
use crate::trace::{Service, Trace, request};

/// Where traces go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpConfig {
    /// `http://HOST:PORT` of a collector that speaks gRPC.
    pub endpoint: String,
    /// What the router is called in traces.
    pub service_name: String,
    pub version: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{endpoint} is no endpoint for traces: {reason}; write http://HOST:PORT of a collector that takes OTLP over gRPC"
)]
pub struct BadEndpoint {
    pub endpoint: String,
    pub reason: String,
}

/// Takes finished traces. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Exporter {
    queue: mpsc::Sender<Trace>,
    queue_full: Counter,
}

/// The task that sends them. Dropped, it sends what waits and ends.
#[derive(Debug)]
pub struct ExporterTask {
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl OtlpConfig {
    fn endpoint(&self) -> Result<Endpoint, BadEndpoint> {
        let bad = |reason: String| BadEndpoint { endpoint: self.endpoint.clone(), reason };
        match self.endpoint.split_once("://") {
            Some(("http", host)) if !host.is_empty() => {}
            Some(("https", _)) => return Err(bad("TLS is not spoken here".to_owned())),
            _ => return Err(bad("it does not begin with http://".to_owned())),
        }
        let endpoint = Endpoint::from_shared(self.endpoint.clone()).map_err(|error| bad(error.to_string()))?;
        Ok(endpoint.connect_timeout(CONNECT_TIME).timeout(EXPORT_TIME))
    }

    /// Whether traces could go there, as far as the words tell.
    pub fn check(&self) -> Result<(), BadEndpoint> {
        self.endpoint().map(drop)
    }
}

impl Exporter {
    /// Starts the task. Nobody is connected to yet: an endpoint that is down is no error.
    pub fn start(config: OtlpConfig) -> Result<(Self, ExporterTask), BadEndpoint> {
        let channel = config.endpoint()?.connect_lazy();
        let (queue, traces) = mpsc::channel(QUEUED_TRACES);
        let (stop, stopped) = oneshot::channel();
        let worker = Worker {
            client: TraceServiceClient::new(channel),
            endpoint: config.endpoint,
            service: Service { name: config.service_name, version: config.version },
            traces,
            exported: table::TRACE_SPANS.of("exported"),
            failed: table::TRACE_SPANS.of("export_failed"),
            failing: false,
        };
        let task = tokio::spawn(worker.run(stopped));
        Ok((Self::to_channel(queue), ExporterTask { task, stop }))
    }

    /// Hands traces to whoever reads the other end of a channel.
    pub fn to_channel(queue: mpsc::Sender<Trace>) -> Self {
        Self { queue, queue_full: table::TRACE_SPANS.of("queue_full") }
    }

    /// Hands a trace over. Never waits: with a full queue the trace is dropped.
    pub fn send(&self, trace: Trace) {
        if let Err(mpsc::error::TrySendError::Full(trace) | mpsc::error::TrySendError::Closed(trace)) =
            self.queue.try_send(trace)
        {
            self.queue_full.increment(trace.spans.len() as u64);
        }
    }
}

impl ExporterTask {
    /// Sends what waits, within `limit`, and ends.
    pub async fn finish(self, limit: Duration) {
        // Fails only when the task has ended.
        let _ = self.stop.send(());
        if timeout(limit, self.task).await.is_err() {
            tracing::warn!("the last traces could not be exported within {limit:?}");
        }
    }
}

struct Worker {
    client: TraceServiceClient<Channel>,
    endpoint: String,
    service: Service,
    traces: mpsc::Receiver<Trace>,
    exported: Counter,
    failed: Counter,
    /// The last export failed: said once, not for each batch.
    failing: bool,
}

impl Worker {
    /// Until it is told to stop, or nobody can send any more.
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut batch = Vec::new();
        loop {
            let open = tokio::select! {
                open = collect(&mut self.traces, &mut batch) => open,
                _ = &mut stopped => {
                    self.traces.close();
                    self.finish(batch).await;
                    return;
                }
            };
            self.export(std::mem::take(&mut batch), TRIES).await;
            if !open {
                return;
            }
        }
    }

    /// What was collected and what waits, each tried once.
    async fn finish(&mut self, mut batch: Vec<Trace>) {
        loop {
            self.traces.recv_many(&mut batch, BATCH_TRACES).await;
            if batch.is_empty() {
                return;
            }
            self.export(std::mem::take(&mut batch), 1).await;
        }
    }

    async fn export(&mut self, traces: Vec<Trace>, tries: u32) {
        if traces.is_empty() {
            return;
        }
        let spans = traces.iter().map(|trace| trace.spans.len() as u64).sum();
        match self.send(request(traces, &self.service), tries).await {
            Ok(answer) => {
                let refused = answer.partial_success.map_or(0, |partial| partial.rejected_spans.max(0).unsigned_abs());
                self.exported.increment(spans - refused.min(spans));
                self.failed.increment(refused.min(spans));
                if std::mem::take(&mut self.failing) {
                    tracing::info!("{} takes traces again", self.endpoint);
                }
            }
            Err(error) => {
                self.failed.increment(spans);
                if !std::mem::replace(&mut self.failing, true) {
                    let (endpoint, code, reason) = (&self.endpoint, error.code(), error.message());
                    tracing::warn!(
                        "{endpoint} (--otlp-endpoint) does not take traces, which are dropped: {code:?} {reason}"
                    );
                }
            }
        }
    }

    async fn send(
        &mut self,
        request: ExportTraceServiceRequest,
        tries: u32,
    ) -> Result<ExportTraceServiceResponse, Status> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..tries {
            match self.client.export(request.clone()).await {
                Err(error) if may_pass(error.code()) => {}
                answer => return answer.map(tonic::Response::into_inner),
            }
            sleep(pause).await;
            pause *= 2;
        }
        self.client.export(request).await.map(tonic::Response::into_inner)
    }
}

/// Waits for a trace and takes those that come soon after it. False: nobody can send any more. Cancel-safe: what was
/// taken is in `batch`.
async fn collect(traces: &mut mpsc::Receiver<Trace>, batch: &mut Vec<Trace>) -> bool {
    if traces.recv_many(batch, BATCH_TRACES).await == 0 {
        return false;
    }
    let until = Instant::now() + BATCH_TIME;
    while batch.len() < BATCH_TRACES {
        match timeout_at(until, traces.recv_many(batch, BATCH_TRACES - batch.len())).await {
            Ok(0) => return false,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    true
}

/// As OTLP says which failures are worth another try.
fn may_pass(code: Code) -> bool {
    use Code::{Aborted, Cancelled, DataLoss, DeadlineExceeded, OutOfRange, ResourceExhausted, Unavailable};
    matches!(code, Aborted | Cancelled | DataLoss | DeadlineExceeded | OutOfRange | ResourceExhausted | Unavailable)
}

/// Traces that wait for the endpoint: some megabytes.
const QUEUED_TRACES: usize = 2048;
/// Well below the four megabytes that receivers take in one message.
const BATCH_TRACES: usize = 256;
const BATCH_TIME: Duration = Duration::from_secs(1);
const CONNECT_TIME: Duration = Duration::from_secs(5);
const EXPORT_TIME: Duration = Duration::from_secs(10);
const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
