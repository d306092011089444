//! A real gRPC server whose answers the test gives by hand.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use headrace_shard::{ShardAddress, proto};
use proto::shard_server::{Shard, ShardServer};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream, UnixListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Runs in a runtime of its own, so that [`die`](Self::die) closes its sockets as a killed process would.
pub struct TestShard {
    pub address: ShardAddress,
    pub settings: Settings,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    runtime: Option<Runtime>,
    _directory: tempfile::TempDir,
}

/// What its unary calls answer.
#[derive(Clone)]
pub struct Settings(Arc<Mutex<Unary>>);

pub struct Unary {
    pub info: proto::InfoResponse,
    /// Blocks that Warmup offers when asked for no number.
    pub blocks: u32,
    pub host_blocks: u32,
    pub swap_us: u64,
    pub warmups: Vec<proto::WarmupRequest>,
    /// `None`: it never answers.
    pub health: Option<proto::HealthResponse>,
}

/// Something came in.
pub enum Arrival {
    Opened { stream: &'static str, session: String },
    Message { stream: &'static str, message: Box<Message>, answers: Reply },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Prefill(proto::PrefillStep),
    Decode(proto::DecodeStep),
    Filter(proto::FilterRows),
}

#[derive(Clone)]
pub enum Reply {
    Step(mpsc::UnboundedSender<Result<proto::StepResult, Status>>),
    Filter(mpsc::UnboundedSender<Result<proto::FilterDone, Status>>),
}

/// A message that waits for its answer.
pub struct Waiting {
    pub stream: &'static str,
    pub message: Message,
    reply: Reply,
}

pub fn info(rank: u32, world_size: u32) -> proto::InfoResponse {
    proto::InfoResponse {
        model_type: "llama".into(),
        dtype: "bfloat16".into(),
        device: format!("cuda:{rank}"),
        vocab_size: 1000,
        max_positions: 2048,
        block_size: 32,
        kv_bytes_per_token: 64,
        rank,
        world_size,
        process_id: 1,
        version: "1.0".into(),
        tokenizer_sha256: String::new(),
    }
}

impl TestShard {
    pub fn on_unix(info: proto::InfoResponse) -> Self {
        Self::start(info, |directory| ShardAddress::Unix(directory.join("shard.sock")))
    }

    pub fn on_tcp(info: proto::InfoResponse) -> Self {
        Self::start(info, |_| ShardAddress::Tcp("127.0.0.1:0".into()))
    }

    fn start(info: proto::InfoResponse, address: impl FnOnce(&std::path::Path) -> ShardAddress) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let health = Some(proto::HealthResponse::default());
        let unary = Unary { info, blocks: 100, host_blocks: 0, swap_us: 0, warmups: vec![], health };
        let settings = Settings(Arc::new(Mutex::new(unary)));
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let service = Service { settings: settings.clone(), arrived };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = serve(&runtime, service, address(directory.path()));
        Self { address, settings, arrivals, runtime: Some(runtime), _directory: directory }
    }

    pub async fn arrival(&mut self) -> Arrival {
        self.arrivals.recv().await.unwrap()
    }

    /// The next message, whichever stream brought it.
    pub async fn message(&mut self) -> Waiting {
        loop {
            if let Arrival::Message { stream, message, answers } = self.arrival().await {
                return Waiting { stream, message: *message, reply: answers };
            }
        }
    }

    /// Waits for the next step and answers it with these tokens.
    pub async fn sample(&mut self, tokens: &[u32]) {
        let waiting = self.message().await;
        waiting.answer(waiting.result(tokens));
    }

    pub fn die(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for TestShard {
    fn drop(&mut self) {
        self.die();
    }
}

impl Settings {
    pub fn change(&self, change: impl FnOnce(&mut Unary)) {
        change(&mut self.0.lock().unwrap());
    }

    pub fn warmups(&self) -> Vec<proto::WarmupRequest> {
        self.0.lock().unwrap().warmups.clone()
    }
}

impl Waiting {
    pub fn sequence(&self) -> u64 {
        match &self.message {
            Message::Prefill(step) => step.sequence,
            Message::Decode(step) => step.sequence,
            Message::Filter(filter) => filter.sequence,
        }
    }

    pub fn step(&self) -> u64 {
        match &self.message {
            Message::Prefill(step) => step.step,
            Message::Decode(step) => step.step,
            Message::Filter(_) => panic!("a Filter has no step"),
        }
    }

    /// A right answer to a step whose rows asked for tokens only.
    pub fn result(&self, tokens: &[u32]) -> proto::StepResult {
        proto::StepResult {
            sequence: self.sequence(),
            step: self.step(),
            token_ids: packed(tokens),
            ..Default::default()
        }
    }

    pub fn answer(&self, result: proto::StepResult) {
        match &self.reply {
            Reply::Step(reply) => drop(reply.send(Ok(result))),
            Reply::Filter(_) => panic!("a Filter is no step"),
        }
    }

    pub fn done(&self) {
        match &self.reply {
            Reply::Step(_) => panic!("a step is no Filter"),
            Reply::Filter(reply) => drop(reply.send(Ok(proto::FilterDone { sequence: self.sequence() }))),
        }
    }

    /// Until the router has let the stream go.
    pub async fn closed(&self) {
        match &self.reply {
            Reply::Step(reply) => reply.closed().await,
            Reply::Filter(reply) => reply.closed().await,
        }
    }

    /// Breaks the stream that brought the message.
    pub fn fail(&self, status: Status) {
        match &self.reply {
            Reply::Step(reply) => drop(reply.send(Err(status))),
            Reply::Filter(reply) => drop(reply.send(Err(status))),
        }
    }
}

pub fn packed(values: &[u32]) -> Bytes {
    values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>().into()
}

pub fn packed_f32(values: &[f32]) -> Bytes {
    packed(&values.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
}

fn serve(runtime: &Runtime, service: Service, address: ShardAddress) -> ShardAddress {
    let _inside = runtime.enter();
    let router = Server::builder().add_service(ShardServer::new(service).max_decoding_message_size(usize::MAX));
    match &address {
        ShardAddress::Unix(path) => {
            let listener = UnixListener::bind(path).unwrap();
            runtime.spawn(router.serve_with_incoming(UnixListenerStream::new(listener)));
            address
        }
        ShardAddress::Tcp(host) => {
            let listener = std::net::TcpListener::bind(host).unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = ShardAddress::Tcp(listener.local_addr().unwrap().to_string());
            let listener = TcpListener::from_std(listener).unwrap();
            runtime.spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
            address
        }
    }
}

#[derive(Clone)]
struct Service {
    settings: Settings,
    arrived: mpsc::UnboundedSender<Arrival>,
}

impl Service {
    fn open<T: Send + 'static, A: Send + 'static>(
        &self,
        stream: &'static str,
        request: Request<Streaming<T>>,
        message: fn(T) -> Message,
        reply: fn(mpsc::UnboundedSender<Result<A, Status>>) -> Reply,
    ) -> Response<Answers<A>> {
        let session = request.metadata().get("headrace-session").unwrap().to_str().unwrap().to_owned();
        let _ = self.arrived.send(Arrival::Opened { stream, session });
        let (answers, outgoing) = mpsc::unbounded_channel();
        let (arrived, mut incoming) = (self.arrived.clone(), request.into_inner());
        tokio::spawn(async move {
            while let Some(Ok(received)) = incoming.next().await {
                let answers = reply(answers.clone());
                let _ = arrived.send(Arrival::Message { stream, message: Box::new(message(received)), answers });
            }
        });
        Response::new(Box::pin(UnboundedReceiverStream::new(outgoing)))
    }
}

#[tonic::async_trait]
impl Shard for Service {
    type PrefillStream = Answers<proto::StepResult>;
    type DecodeStream = Answers<proto::StepResult>;
    type FilterStream = Answers<proto::FilterDone>;

    async fn info(&self, _: Request<proto::InfoRequest>) -> Result<Response<proto::InfoResponse>, Status> {
        Ok(Response::new(self.settings.0.lock().unwrap().info.clone()))
    }

    async fn warmup(&self, request: Request<proto::WarmupRequest>) -> Result<Response<proto::WarmupResponse>, Status> {
        let request = request.into_inner();
        let mut unary = self.settings.0.lock().unwrap();
        unary.warmups.push(request);
        let num_blocks = request.num_blocks.unwrap_or(unary.blocks);
        if num_blocks > unary.blocks {
            return Err(Status::failed_precondition(format!("{num_blocks} blocks asked, {} fit", unary.blocks)));
        }
        Ok(Response::new(proto::WarmupResponse {
            num_blocks,
            pool_bytes: 7,
            available_bytes: 9,
            step_us: 11,
            host_blocks: unary.host_blocks,
            swap_us: unary.swap_us,
        }))
    }

    async fn health(&self, _: Request<proto::HealthRequest>) -> Result<Response<proto::HealthResponse>, Status> {
        let health = self.settings.0.lock().unwrap().health;
        match health {
            Some(health) => Ok(Response::new(health)),
            None => std::future::pending().await,
        }
    }

    async fn prefill(
        &self,
        request: Request<Streaming<proto::PrefillStep>>,
    ) -> Result<Response<Self::PrefillStream>, Status> {
        Ok(self.open("Prefill", request, Message::Prefill, Reply::Step))
    }

    async fn decode(
        &self,
        request: Request<Streaming<proto::DecodeStep>>,
    ) -> Result<Response<Self::DecodeStream>, Status> {
        Ok(self.open("Decode", request, Message::Decode, Reply::Step))
    }

    async fn filter(
        &self,
        request: Request<Streaming<proto::FilterRows>>,
    ) -> Result<Response<Self::FilterStream>, Status> {
        Ok(self.open("Filter", request, Message::Filter, Reply::Filter))
    }
}
