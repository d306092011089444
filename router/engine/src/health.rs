//! Is the engine able to serve? Answered in bounded time, and never by waiting for the model thread.

use std::time::Duration;

use headrace_shard::LogicalShard;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::command::Command;

/// The driver answers between two events, the shard off its model thread: a healthy one needs milliseconds.
const LIMIT: Duration = Duration::from_secs(5);

/// Both the driver and the shard must answer.
pub(crate) async fn check(driver: &mpsc::Sender<Command>, shard: &LogicalShard) -> Result<(), String> {
    let (driver, shard) = tokio::join!(timeout(LIMIT, ping(driver)), timeout(LIMIT, shard.health()));
    driver.map_err(|_| format!("the engine's task did not answer within {LIMIT:?}"))??;
    shard.map_err(|_| format!("the shard did not answer within {LIMIT:?}"))?.map_err(|error| error.to_string())
}

/// Waits until the driver has dealt with what came before.
pub(crate) async fn ping(driver: &mpsc::Sender<Command>) -> Result<(), String> {
    let ended = || "the engine's task has ended".to_owned();
    let (reply, answer) = oneshot::channel();
    driver.send(Command::Ping(reply)).await.map_err(|_| ended())?;
    answer.await.map_err(|_| ended())
}
