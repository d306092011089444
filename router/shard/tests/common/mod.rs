//! A shard that a test plays by hand, and plans to send to it.
#![allow(dead_code, unused_imports, clippy::unwrap_used)] // each test binary uses its part

pub mod plans;
pub mod test_shard;

use std::time::Duration;

use headrace_shard::{Deadlines, LogicalShard, Session, ShardError};

pub use test_shard::{Arrival, Message, TestShard, info};

/// Short enough for a test that waits for one, long enough for a loaded machine.
pub fn deadlines() -> Deadlines {
    let limit = Duration::from_secs(60);
    Deadlines { connect: limit, info: limit, warmup: limit, health: limit, step: limit }
}

/// As many ranks as asked, and a session with them.
pub async fn open(ranks: u32) -> (Vec<TestShard>, Session) {
    let (shards, logical) = connected(ranks).await;
    let session = logical.open_session().await.unwrap();
    (shards, session)
}

pub async fn connected(ranks: u32) -> (Vec<TestShard>, LogicalShard) {
    let shards: Vec<_> = (0..ranks).map(|rank| TestShard::on_unix(info(rank, ranks))).collect();
    let logical = connect(&shards).await.unwrap();
    (shards, logical)
}

pub async fn connect(shards: &[TestShard]) -> Result<LogicalShard, ShardError> {
    let addresses: Vec<_> = shards.iter().map(|shard| shard.address.clone()).collect();
    LogicalShard::connect(&addresses, deadlines()).await
}
