//! Whether the server is ready to be measured.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::answer::AskError;
use crate::connection::Connection;
use crate::target::Target;

impl Target {
    /// Waits until the server says that it is healthy, or until `patience` is over.
    ///
    /// # Errors
    /// What it did instead, the last time it was asked.
    pub async fn wait_until_healthy(&self, patience: Duration) -> Result<(), AskError> {
        let deadline = Instant::now() + patience;
        loop {
            match timeout(HEALTH_TIME, self.healthy()).await.unwrap_or(Err(AskError::Timeout(HEALTH_TIME))) {
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => tokio::time::sleep(HEALTH_PAUSE).await,
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn healthy(&self) -> Result<(), AskError> {
        let status = Connection::open(self).await?.status(self.health()).await?;
        match status.as_u16() {
            200 => Ok(()),
            status => Err(AskError::Status { status, body: "not healthy".into() }),
        }
    }
}

const HEALTH_TIME: Duration = Duration::from_secs(5);
const HEALTH_PAUSE: Duration = Duration::from_millis(50);
