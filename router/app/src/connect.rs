//! The way to the shards. Who asks for the server's health hears which of them is missing.

use std::cell::RefCell;
use std::time::Duration;

use headrace_http::Front;
use headrace_shard::{Deadlines, LogicalShard, ShardAddress, ShardError};

/// Waits until all ranks are there. What is missing goes to the log when it changes, and to /readyz.
pub async fn connect(
    addresses: &[ShardAddress],
    deadlines: Deadlines,
    front: &Front,
) -> Result<LogicalShard, ShardError> {
    let said = RefCell::new(String::new());
    let waiting = |sentence: &str| {
        if *said.borrow() != sentence {
            tracing::warn!("{sentence}");
            front.doing(sentence.to_owned());
            *said.borrow_mut() = sentence.to_owned();
        }
    };
    LogicalShard::connect(addresses, deadlines, waiting).await
}

/// A step may take as long as the flags say.
pub fn deadlines(step: Duration) -> Deadlines {
    Deadlines { step, ..Deadlines::default() }
}
