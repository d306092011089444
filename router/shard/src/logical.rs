//! N ranks as one logical worker: what is asked of it outside of steps.

use std::sync::Arc;

use futures::future::join_all;
use headrace_scheduler::{Blocks, Micros};

use crate::address::ShardAddress;
use crate::deadlines::Deadlines;
use crate::error::ShardError;
use crate::facts::{PoolReport, ShardFacts, WarmupLimits, agreed};
use crate::fake::FakeShard;
use crate::gather::gather;
use crate::order::in_order;
use crate::rank::Rank;
use crate::remote::RemoteSession;
use crate::session::Session;

/// All ranks of one model. Cheap to clone; clones share the connections.
#[derive(Clone, Debug)]
pub struct LogicalShard {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Remote(Arc<[Rank]>),
    Fake(Arc<FakeShard>),
}

impl LogicalShard {
    /// Connects to every rank; rank i listens at `addresses[i]`. Waits, trying again, until all answer; `waiting` hears
    /// every few seconds for whom, as in "waiting for rank 1 at 10.0.0.2:7000 (connection refused)".
    ///
    /// # Errors
    /// `Unreachable` with the last reason when one does not within `deadlines.connect`; `Addresses` as soon as it is
    /// known that there are not as many ranks; `Misuse` without addresses.
    pub async fn connect(
        addresses: &[ShardAddress],
        deadlines: Deadlines,
        waiting: impl Fn(&str),
    ) -> Result<Self, ShardError> {
        if addresses.is_empty() {
            return Err(ShardError::Misuse { reason: "there are no shard addresses to connect to".into() });
        }
        Ok(Self { kind: Kind::Remote(gather(addresses, deadlines, waiting).await?.into()) })
    }

    /// A shard in this process; see [`FakeShard`].
    pub fn fake(fake: FakeShard) -> Self {
        Self { kind: Kind::Fake(Arc::new(fake)) }
    }

    /// What the shard has loaded.
    ///
    /// # Errors
    /// `Addresses` when they are not those of all ranks in their order; `Protocol`, naming a rank and both values, when
    /// ranks do not hold the same model.
    pub async fn facts(&self) -> Result<ShardFacts, ShardError> {
        match &self.kind {
            Kind::Remote(ranks) => {
                let infos = all(ranks.iter().map(Rank::info)).await?;
                in_order(ranks.iter().map(Rank::address), &infos)?;
                agreed(&infos)
            }
            Kind::Fake(fake) => fake.facts(),
        }
    }

    /// Measures memory and allocates the KV pool. Every rank ends with the same number of blocks: when the first
    /// answers differ, the smallest is asked of all.
    ///
    /// # Errors
    /// `Refused`, with both numbers, when `limits.blocks` do not fit.
    pub async fn warmup(&self, limits: &WarmupLimits) -> Result<PoolReport, ShardError> {
        let ranks = match &self.kind {
            Kind::Remote(ranks) => ranks,
            Kind::Fake(fake) => return fake.warmup(limits),
        };
        let pools = all(ranks.iter().map(|rank| rank.warmup(limits))).await?;
        let smallest = PoolReport::smallest(&pools);
        if pools.iter().all(|pool| pool.blocks == smallest.blocks) {
            return Ok(smallest);
        }
        let same = WarmupLimits { blocks: Some(smallest.blocks), ..limits.clone() };
        Ok(PoolReport::smallest(&all(ranks.iter().map(|rank| rank.warmup(&same))).await?))
    }

    /// Is every rank's process alive and answering?
    ///
    /// # Errors
    /// The lowest rank's that is not.
    pub async fn health(&self) -> Result<(), ShardError> {
        match &self.kind {
            Kind::Remote(ranks) => all(ranks.iter().map(Rank::health)).await.map(drop),
            Kind::Fake(fake) => fake.health(),
        }
    }

    /// Opens a session, in which nothing is known of an older one.
    ///
    /// # Errors
    /// As [`facts`](Self::facts), which it asks first: a shard that was replaced by a different model is not used.
    /// `Refused` when a rank has a session that goes on.
    pub async fn open_session(&self) -> Result<Session, ShardError> {
        match &self.kind {
            Kind::Remote(ranks) => {
                let facts = self.facts().await?;
                let session = rand::random();
                // Rank 0 first: of two routers that come at once, one is refused there and has disturbed no other rank.
                let mut streams = vec![ranks[0].open(session).await?];
                streams.extend(all(ranks[1..].iter().map(|rank| rank.open(session))).await?);
                tracing::debug!(session, ranks = facts.ranks, "session open");
                Ok(Session::remote(RemoteSession::new(ranks.clone(), streams, facts.vocab_size)))
            }
            Kind::Fake(fake) => fake.open().map(Session::fake),
        }
    }
}

/// Runs a call on all ranks at once. The error is the lowest rank's, whichever came first.
async fn all<T>(
    calls: impl Iterator<Item = impl Future<Output = Result<T, ShardError>>>,
) -> Result<Vec<T>, ShardError> {
    join_all(calls).await.into_iter().collect()
}

impl PoolReport {
    /// What all ranks can give: the fewest blocks, the least memory, the longest step and copy. Their bytes are those of
    /// the rank that holds most: one without attention has none.
    fn smallest(pools: &[PoolReport]) -> PoolReport {
        let most = |of: fn(&PoolReport) -> u64| pools.iter().map(of).max().unwrap_or(0);
        PoolReport {
            blocks: pools.iter().map(|pool| pool.blocks).min().unwrap_or(Blocks::ZERO),
            pool_bytes: most(|pool| pool.pool_bytes),
            available_bytes: pools.iter().map(|pool| pool.available_bytes).min().unwrap_or(0),
            step_us: most(|pool| pool.step_us),
            host_blocks: pools.iter().map(|pool| pool.host_blocks).min().unwrap_or(Blocks::ZERO),
            swap_time: pools.iter().map(|pool| pool.swap_time).max().unwrap_or(Micros::ZERO),
        }
    }
}
