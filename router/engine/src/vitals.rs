//! How the engine and its shard do, known before anybody asks.
//!
//! A task asks both once a second and notes what they say. So a probe is answered at once, from memory, however busy
//! they are; and what has not answered for long is known by the age of its last answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headrace_shard::LogicalShard;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::command::Command;
use crate::health;

/// From one question to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a question may be without an answer. The driver answers between two events, the shard off its model thread:
/// healthy ones need milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was said last, and when.
pub(crate) struct Vitals {
    began: Instant,
    driver: Answered,
    shard: Answered,
    /// Why the shard's last answer was none. Held for as long as a sentence is written or copied.
    complaint: Mutex<Option<String>>,
}

/// Milliseconds from the beginning to the last answer.
#[derive(Default)]
struct Answered(AtomicU64);

impl Vitals {
    /// Begins to ask; goes on while the engine has other handles.
    pub(crate) fn watch(driver: mpsc::WeakSender<Command>, shard: LogicalShard) -> Arc<Self> {
        let vitals = Arc::new(Self {
            began: Instant::now(),
            driver: Answered::default(),
            shard: Answered::default(),
            complaint: Mutex::default(),
        });
        let watched = vitals.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = watched.ask_driver(driver) => {}
                () = watched.ask_shard(shard) => {}
            }
        });
        vitals
    }

    /// The engine's task turns.
    pub(crate) fn driver(&self) -> Result<(), String> {
        self.lately(&self.driver, "the engine's task")
    }

    /// Every rank answers.
    pub(crate) fn shard(&self) -> Result<(), String> {
        if let Some(complaint) = &*self.complaint.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(complaint.clone());
        }
        self.lately(&self.shard, "the shard")
    }

    fn lately(&self, answered: &Answered, who: &str) -> Result<(), String> {
        let last = Duration::from_millis(answered.0.load(Ordering::Relaxed));
        let age = self.began.elapsed().saturating_sub(last);
        if age < PERIOD + PATIENCE { Ok(()) } else { Err(format!("{who} has not answered for {} s", age.as_secs())) }
    }

    fn note(&self, answered: &Answered) {
        let now = self.began.elapsed().as_millis();
        answered.0.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Ends when the driver does. Holds its inbox open only while it asks.
    async fn ask_driver(&self, driver: mpsc::WeakSender<Command>) {
        loop {
            let Some(inbox) = driver.upgrade() else { return };
            if health::ping(&inbox).await.is_err() {
                return;
            }
            drop(inbox);
            self.note(&self.driver);
            sleep(PERIOD).await;
        }
    }

    async fn ask_shard(&self, shard: LogicalShard) {
        loop {
            let complaint = match timeout(PATIENCE, shard.health()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("the shard did not answer within {PATIENCE:?}")),
            };
            *self.complaint.lock().unwrap_or_else(PoisonError::into_inner) = complaint;
            self.note(&self.shard);
            sleep(PERIOD).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use headrace_shard::FakeShard;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_does_not_answer_for_long_is_no_longer_well() {
        let (sender, mut inbox) = mpsc::channel(8);
        let vitals = Vitals::watch(sender.downgrade(), LogicalShard::fake(FakeShard::new()));
        let Some(Command::Ping(reply)) = inbox.recv().await else { panic!("no ping") };
        sleep(PATIENCE).await;
        assert_eq!(vitals.driver(), Ok(()), "it may only be slow");
        sleep(PERIOD).await;
        let said = vitals.driver().expect_err("nobody answers");
        assert!(said.contains("the engine's task has not answered for 11 s"), "{said}");
        reply.send(()).expect("somebody waits");
        sleep(Duration::from_millis(1)).await;
        assert_eq!(vitals.driver(), Ok(()));
    }
}
