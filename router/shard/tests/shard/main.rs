//! The shard as its callers see it. One binary, because each one costs a link of the whole gRPC stack.
#![allow(clippy::unwrap_used)]

mod connect;
mod fake;
mod plans;
mod ranks;
mod session;
mod test_shard;

use std::time::Duration;

use futures::FutureExt;
use headrace_shard::{Deadlines, LogicalShard, Session, ShardError};
use test_shard::{TestShard, info};

/// No test waits for one; long enough for a loaded machine.
fn deadlines() -> Deadlines {
    let limit = Duration::from_secs(60);
    Deadlines { connect: limit, patience: limit, info: limit, warmup: limit, health: limit, step: limit }
}

/// As many ranks as asked, and a session with them.
async fn open(ranks: u32) -> (Vec<TestShard>, Session) {
    let (shards, logical) = connected(ranks).await;
    let session = logical.open_session().await.unwrap();
    (shards, session)
}

async fn connected(ranks: u32) -> (Vec<TestShard>, LogicalShard) {
    let shards: Vec<_> = (0..ranks).map(|rank| TestShard::on_unix(info(rank, ranks))).collect();
    let logical = connect_to(&shards).await.unwrap();
    (shards, logical)
}

async fn connect_to(shards: &[TestShard]) -> Result<LogicalShard, ShardError> {
    let addresses: Vec<_> = shards.iter().map(|shard| shard.address.clone()).collect();
    LogicalShard::connect(&addresses, deadlines(), |_| ()).await
}

/// Polls until `count` answers of ranks have come in and wait for the others; that they do not make a result is part of
/// the claim. What has come in shows only in the session's debug output.
async fn hold_answers(session: &mut Session, count: usize) {
    while format!("{session:?}").matches("Some(StepResult").count() < count {
        assert!(session.next_result().now_or_never().is_none(), "a result though an answer is missing");
        tokio::task::yield_now().await;
    }
    assert!(session.next_result().now_or_never().is_none(), "a result though an answer is missing");
}
