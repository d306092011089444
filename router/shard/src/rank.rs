//! One rank: calls outside of steps, each with its deadline, and the opening of its streams.

use std::error::Error;
use std::time::Duration;

use headrace_scheduler::{Blocks, Micros};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::address::ShardAddress;
use crate::connector::{causes, connect};
use crate::deadlines::Deadlines;
use crate::error::ShardError;
use crate::facts::{PoolReport, WarmupLimits};
use crate::proto::shard_client::ShardClient;
use crate::proto::{HealthRequest, HealthResponse, InfoRequest, InfoResponse, WarmupRequest, WarmupResponse};
use crate::streams::RankStreams;

/// A connection to one shard process.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    number: u32,
    address: ShardAddress,
    channel: Channel,
    deadlines: Deadlines,
}

impl Rank {
    /// Tries until the rank accepts and says that it lives, or `deadlines.connect` has passed. Every failure goes to
    /// `failed`.
    pub(crate) async fn connect(
        number: u32,
        address: &ShardAddress,
        deadlines: Deadlines,
        failed: impl Fn(String),
    ) -> Result<Self, ShardError> {
        let mut reason = "the connection was not accepted".to_owned();
        let mut failed = |failure: String| {
            reason.clone_from(&failure);
            failed(failure);
        };
        let reached = timeout(deadlines.connect, async {
            let channel = connect(address, &mut failed).await;
            failed("it accepts connections, but does not answer".to_owned());
            let rank = Self { number, address: address.clone(), channel, deadlines };
            loop {
                match rank.health().await {
                    Err(ShardError::Timeout { .. }) => {} // a process that is busy, or stands still, or is no rank
                    lives => return lives.map(|()| rank),
                }
            }
        });
        match reached.await {
            Ok(rank) => rank,
            Err(_) => Err(ShardError::Unreachable {
                rank: number,
                address: address.to_string(),
                reason: format!("{reason} (tried for {:?})", deadlines.connect),
            }),
        }
    }

    pub(crate) async fn info(&self) -> Result<InfoResponse, ShardError> {
        let mut client = self.client();
        self.call("Info", self.deadlines.info, client.info(InfoRequest {})).await.map(Response::into_inner)
    }

    pub(crate) async fn warmup(&self, limits: &WarmupLimits) -> Result<PoolReport, ShardError> {
        let request = WarmupRequest {
            max_batch_size: limits.max_batch_size,
            max_batch_prefill_tokens: limits.max_batch_prefill_tokens.0,
            max_total_tokens: limits.max_total_tokens.map_or(0, |tokens| tokens.0),
            num_blocks: limits.blocks.map(|blocks| blocks.0),
            host_bytes: limits.host_bytes,
        };
        let mut client = self.client();
        let answer = self.call("Warmup", self.deadlines.warmup, client.warmup(request)).await?;
        self.pool(answer.into_inner(), limits.blocks)
    }

    pub(crate) async fn health(&self) -> Result<(), ShardError> {
        self.ask_health(self.deadlines.health).await.map(drop)
    }

    /// Whether the step under way waits for another rank.
    pub(crate) async fn waits_for_ranks(&self, limit: Duration) -> Result<bool, ShardError> {
        self.ask_health(limit.min(self.deadlines.health)).await.map(|health| health.waits_for_ranks)
    }

    async fn ask_health(&self, limit: Duration) -> Result<HealthResponse, ShardError> {
        let mut client = self.client();
        self.call("Health", limit, client.health(HealthRequest {})).await.map(Response::into_inner)
    }

    /// Opens the three streams of a session, which they name.
    pub(crate) async fn open(&self, session: u64) -> Result<RankStreams, ShardError> {
        let streams = RankStreams::open(self.number, &self.channel, session);
        self.call("a session", self.deadlines.info, streams).await
    }

    pub(crate) fn step_deadline(&self) -> Duration {
        self.deadlines.step
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn address(&self) -> &ShardAddress {
        &self.address
    }

    fn client(&self) -> ShardClient<Channel> {
        ShardClient::new(self.channel.clone())
    }

    fn pool(&self, answer: WarmupResponse, wanted: Option<Blocks>) -> Result<PoolReport, ShardError> {
        let blocks = Blocks(answer.num_blocks);
        let protocol = |reason| Err(ShardError::Protocol { rank: self.number, reason });
        if blocks == Blocks::ZERO {
            return protocol("its pool has 0 blocks".into());
        }
        if let Some(wanted) = wanted.filter(|wanted| *wanted != blocks) {
            return protocol(format!("it was asked for {wanted} blocks and made a pool of {blocks}"));
        }
        Ok(PoolReport {
            blocks,
            pool_bytes: answer.pool_bytes,
            available_bytes: answer.available_bytes,
            step_us: answer.step_us,
            host_blocks: Blocks(answer.host_blocks),
            swap_time: Micros(answer.swap_us),
        })
    }

    async fn call<T>(
        &self,
        call: &'static str,
        limit: Duration,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, ShardError> {
        match timeout(limit, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => Err(self.refusal(call, &status)),
            Err(_) => Err(ShardError::Timeout { rank: self.number, call, limit }),
        }
    }

    /// A status that the transport made says that nobody is there; one that the shard sent is its refusal.
    fn refusal(&self, call: &'static str, status: &Status) -> ShardError {
        let lost = status.code() == Code::Unavailable || status.source().is_some();
        if lost {
            let (address, reason) = (self.address.to_string(), status_text(status));
            return ShardError::Unreachable { rank: self.number, address, reason };
        }
        ShardError::Refused { rank: self.number, call, reason: status_text(status) }
    }
}

/// A status as a sentence: the shard's own words, or the transport's with their causes.
pub(crate) fn status_text(status: &Status) -> String {
    let message = if status.message().is_empty() { status.code().description() } else { status.message() };
    let cause = status.source().map(causes).unwrap_or_default();
    if message.contains(&cause) { message.to_owned() } else { format!("{message}: {cause}") }
}
