//! One rank's three streams, and whether its answers keep the order.

use std::collections::VecDeque;
use std::error::Error;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures::StreamExt;
use prost::Message;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::codec::EncodedCodec;
use crate::error::ShardError;
use crate::proto;
use crate::rank::status_text;
use crate::session::{MAX_FILTERS_IN_FLIGHT, MAX_STEPS_IN_FLIGHT};
use crate::wire::{MAX_MESSAGE_BYTES, StepKind};

/// Metadata key of a stream's session.
const SESSION: &str = "headrace-session";

/// The streams of one session with one rank. Dropping them ends it.
#[derive(Debug)]
pub(crate) struct RankStreams {
    rank: u32,
    prefill: Lane<proto::StepResult>,
    decode: Lane<proto::StepResult>,
    filter: Lane<proto::FilterDone>,
}

impl RankStreams {
    pub(crate) async fn open(rank: u32, channel: &Channel, session: u64) -> Result<Self, Status> {
        let (prefill, decode, filter) = futures::try_join!(
            Lane::open("Prefill", "/headrace.shard.v1.Shard/Prefill", MAX_STEPS_IN_FLIGHT, channel, session),
            Lane::open("Decode", "/headrace.shard.v1.Shard/Decode", MAX_STEPS_IN_FLIGHT, channel, session),
            Lane::open("Filter", "/headrace.shard.v1.Shard/Filter", MAX_FILTERS_IN_FLIGHT, channel, session),
        )?;
        Ok(Self { rank, prefill, decode, filter })
    }

    pub(crate) fn send_step(&mut self, kind: StepKind, sequence: u64, message: Bytes) -> Result<(), ShardError> {
        match kind {
            StepKind::Prefill => self.prefill.send(sequence, message),
            StepKind::Decode => self.decode.send(sequence, message),
        }
        .map_err(|fault| fault.of(self.rank))
    }

    pub(crate) fn send_filter(&mut self, sequence: u64, message: Bytes) -> Result<(), ShardError> {
        self.filter.send(sequence, message).map_err(|fault| fault.of(self.rank))
    }

    /// The next answer to a step, of whichever stream; answers to Filters are consumed on the way.
    pub(crate) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<proto::StepResult, ShardError>> {
        let rank = self.rank;
        while let Poll::Ready(done) = self.filter.poll_answer(cx) {
            if let Err(fault) = done {
                return Poll::Ready(Err(fault.of(rank)));
            }
        }
        for lane in [&mut self.prefill, &mut self.decode] {
            if let Poll::Ready(answer) = lane.poll_answer(cx) {
                return Poll::Ready(answer.map_err(|fault| fault.of(rank)));
            }
        }
        Poll::Pending
    }
}

/// One stream: messages out, exactly one answer to each, in the same order.
#[derive(Debug)]
struct Lane<T> {
    name: &'static str,
    messages: mpsc::Sender<Bytes>,
    answers: Streaming<T>,
    /// Sequence numbers of messages not yet answered, oldest first.
    awaited: VecDeque<u64>,
}

impl<T: Message + Default + Sequenced + 'static> Lane<T> {
    async fn open(
        name: &'static str,
        path: &'static str,
        capacity: usize,
        channel: &Channel,
        session: u64,
    ) -> Result<Self, Status> {
        let (messages, outgoing) = mpsc::channel(capacity);
        let mut grpc = tonic::client::Grpc::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let mut request = Request::new(ReceiverStream::new(outgoing));
        request.metadata_mut().insert(SESSION, MetadataValue::from(session));
        let codec = EncodedCodec::<T>::default();
        let response = grpc.streaming(request, PathAndQuery::from_static(path), codec).await?;
        Ok(Self { name, messages, answers: response.into_inner(), awaited: VecDeque::new() })
    }

    /// Hands the message to the connection. Never waits: an unanswered message still has its place in the channel.
    fn send(&mut self, sequence: u64, message: Bytes) -> Result<(), Fault> {
        match self.messages.try_send(message) {
            Ok(()) => {
                self.awaited.push_back(sequence);
                Ok(())
            }
            Err(TrySendError::Full(_)) => {
                Err(Fault::Protocol(format!("it has not read the last {} {} messages", self.awaited.len(), self.name)))
            }
            Err(TrySendError::Closed(_)) => Err(self.why_closed()),
        }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Fault>> {
        let name = self.name;
        Poll::Ready(match ready!(self.answers.poll_next_unpin(cx)) {
            Some(Ok(answer)) => self.in_order(answer),
            Some(Err(status)) => Err(Fault::of_status(name, &status)),
            None => Err(Fault::Ended(format!("it closed its {name} stream"))),
        })
    }

    /// What ended the stream is the last of its answers.
    fn why_closed(&mut self) -> Fault {
        match self.poll_answer(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(fault)) => fault,
            Poll::Ready(Ok(_)) | Poll::Pending => Fault::Ended(format!("it reads no more of its {} stream", self.name)),
        }
    }

    fn in_order(&mut self, answer: T) -> Result<T, Fault> {
        let (name, sequence) = (self.name, answer.sequence());
        match self.awaited.pop_front() {
            Some(awaited) if awaited == sequence => Ok(answer),
            Some(awaited) => {
                Err(Fault::Protocol(format!("{name} message {awaited} is to be answered, it answered {sequence}")))
            }
            None => Err(Fault::Protocol(format!("it answered {name} message {sequence}, which is not awaited"))),
        }
    }
}

/// An answer that names the message it answers.
trait Sequenced {
    fn sequence(&self) -> u64;
}

impl Sequenced for proto::StepResult {
    fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Sequenced for proto::FilterDone {
    fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// What went wrong on a stream, before the rank's name is put to it.
enum Fault {
    /// Nobody is at the other end any more.
    Gone,
    Ended(String),
    Protocol(String),
}

impl Fault {
    /// A status that the transport made says that nobody is there; what it says of frames and sockets helps nobody who
    /// waits for an answer.
    fn of_status(name: &'static str, status: &Status) -> Self {
        if status.source().is_some() {
            tracing::debug!("the {name} stream broke: {}", status_text(status));
            return Self::Gone;
        }
        Self::Ended(format!("its {name} stream broke: {}", status_text(status)))
    }

    fn of(self, rank: u32) -> ShardError {
        match self {
            Self::Gone => ShardError::Gone { rank },
            Self::Ended(reason) => ShardError::SessionEnded { rank, reason },
            Self::Protocol(reason) => ShardError::Protocol { rank, reason },
        }
    }
}
