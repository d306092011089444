//! Connecting to every rank. While one is missing it is said which, and those that are there are asked whether it will
//! ever come.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, interval_at};

use crate::address::ShardAddress;
use crate::deadlines::Deadlines;
use crate::error::ShardError;
use crate::order::as_many;
use crate::rank::Rank;

/// Ranks in the order of their addresses. `waiting` hears for whom and why, whenever patience is over.
///
/// # Errors
/// `Unreachable` when one does not accept, or answer at all, in time; `Addresses` when those that are there say that
/// there are not as many ranks; what one that is there answers when it cannot load its model.
pub(crate) async fn gather(
    addresses: &[ShardAddress],
    deadlines: Deadlines,
    waiting: impl Fn(&str),
) -> Result<Vec<Rank>, ShardError> {
    let missing: Vec<_> = addresses.iter().map(|_| Missing::default()).collect();
    let mut connecting: FuturesUnordered<_> = (0..)
        .zip(addresses)
        .zip(&missing)
        .map(|((number, address), missing)| Rank::connect(number, address, deadlines, |reason| missing.because(reason)))
        .collect();
    let mut here: Vec<Rank> = Vec::new();
    let mut asked = 0;
    let mut answering = FuturesUnordered::new();
    let mut patience = interval_at(Instant::now() + deadlines.patience, deadlines.patience);
    while here.len() < addresses.len() {
        tokio::select! {
            Some(rank) = connecting.next() => here.push(rank?),
            Some((rank, info)) = answering.next() => as_many(addresses, &addresses[rank], &info?)?,
            _ = patience.tick() => {
                waiting(&sentence(addresses, &missing, &here));
                answering.extend(here[asked..].iter().cloned().map(|rank| async move {
                    (rank.number() as usize, rank.info().await)
                }));
                asked = here.len();
            }
        }
    }
    here.sort_by_key(Rank::number);
    Ok(here)
}

/// Why the last attempt to connect failed.
#[derive(Default)]
struct Missing(Mutex<Option<String>>);

impl Missing {
    fn because(&self, reason: String) {
        *self.lock() = Some(reason);
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As in "waiting for rank 1 at 10.0.0.2:7000 (connection refused)".
fn sentence(addresses: &[ShardAddress], missing: &[Missing], here: &[Rank]) -> String {
    let absent =
        (0..).zip(addresses).zip(missing).filter(|((number, _), _)| here.iter().all(|rank| rank.number() != *number));
    let named = absent.map(|((number, address), missing)| {
        let reason = missing.lock().clone().unwrap_or_else(|| "no answer yet".to_owned());
        format!("rank {number} at {address} ({reason})")
    });
    format!("waiting for {}", named.collect::<Vec<_>>().join(" and "))
}
