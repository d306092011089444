//! Which rank holds a step up. Those that wait for it have not answered the step either.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::join_all;

use crate::error::ShardError;
use crate::rank::Rank;

/// For an answer to Health, which no step holds up; an operator waits for what comes of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a rank says of itself while a step is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Nothing: its process stands still, or the way to it is broken.
    Silent,
    /// It works, or so it thinks.
    Works,
    /// It waits for another rank.
    Waits,
}

/// The question to all ranks that have not answered a step, under way.
pub(crate) struct Inquiry(Pin<Box<dyn Future<Output = ShardError> + Send>>);

impl Inquiry {
    /// `limit`: what the step had.
    pub(crate) fn begin(missing: Vec<Rank>, limit: Duration) -> Self {
        Self(Box::pin(async move {
            let (ranks, silent) = culprits(&join_all(missing.iter().map(ask)).await);
            ShardError::Hung { ranks, silent, limit }
        }))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ShardError> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inquiry")
    }
}

async fn ask(rank: &Rank) -> (u32, Sign) {
    let sign = match rank.waits_for_ranks(PATIENCE).await {
        Ok(true) => Sign::Waits,
        Ok(false) => Sign::Works,
        Err(_) => Sign::Silent,
    };
    (rank.number(), sign)
}

/// Those with the worst sign, and whether that is silence. Where all wait, nobody is known to be at fault.
fn culprits(signs: &[(u32, Sign)]) -> (Vec<u32>, bool) {
    let with = |wanted| signs.iter().filter(|&&(_, sign)| sign == wanted).map(|&(rank, _)| rank).collect::<Vec<_>>();
    for sign in [Sign::Silent, Sign::Works, Sign::Waits] {
        let ranks = with(sign);
        if !ranks.is_empty() {
            return (ranks, sign == Sign::Silent);
        }
    }
    (Vec::new(), false)
}
