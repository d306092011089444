//! When requests start.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// How hard a server is pressed, and for how long.
#[derive(Clone, Debug)]
pub struct Load {
    pub arrivals: Arrivals,
    /// Requests of the run.
    pub requests: u64,
    /// No request starts later than this; those under way are finished.
    pub duration: Option<Duration>,
    /// Requests before the run that no figure counts.
    pub warmup: u64,
    /// Longest time of one request.
    pub timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: each of so many streams asks, reads its answer to the end, and asks again.
    Streams(u32),
    /// Open loop: requests a second, on average and independent of each other (a Poisson process), however many are
    /// under way.
    Rate(f64),
}

/// When the requests of an open loop are due, as times from its start.
pub(crate) fn poisson(rate: f64, seed: u64) -> impl Iterator<Item = Duration> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut due = 0.0;
    std::iter::from_fn(move || {
        // 1 − x is in (0, 1]: its logarithm is finite.
        let x: f64 = random.random();
        due += -(1.0 - x).ln() / rate;
        Some(Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_their_rate_and_are_as_uneven_as_chance() {
        let due: Vec<f64> = poisson(50.0, 3).take(20_000).map(|due| due.as_secs_f64()).collect();
        let gaps: Vec<f64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Twenty thousand draws: 3 % is four standard deviations of the mean, 10 % about as many of the other.
        assert!((mean * 50.0 - 1.0).abs() < 0.03, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.1, "{variance}");
    }
}
