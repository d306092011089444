//! When requests start.

use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp, Gamma};

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

#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: each of so many streams asks, reads its answer to the end, and asks again.
    Streams(u32),
    /// Open loop: so many requests a second on average, however many are under way.
    Rate { per_second: f64, gaps: Gaps },
    /// Open loop: at these times from the start, in order.
    At(Arc<[Duration]>),
}

/// How the times between the requests of an open loop differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gaps {
    /// As when many people ask independently of each other: a Poisson process.
    Poisson,
    /// Gamma-distributed with this shape, above 0. 1 is Poisson; below it requests come in bursts with long pauses
    /// between them, above it ever more evenly. The standard deviation of the gaps is 1/√shape of their mean.
    Bursty(f64),
    /// All the same.
    Even,
}

type Dues = Box<dyn Iterator<Item = Duration> + Send>;

impl Arrivals {
    /// When the requests of an open loop are due, as times from its start; the first of a rate at once. `None` for a
    /// closed loop.
    pub(crate) fn due(&self, seed: u64) -> Option<Dues> {
        match self {
            Self::Streams(_) => None,
            Self::At(times) => {
                let times = times.clone();
                Some(Box::new((0..times.len()).map(move |number| times[number])))
            }
            Self::Rate { per_second, gaps } => Some(Box::new(sums(gaps.drawn(1.0 / per_second, seed)))),
        }
    }
}

impl Gaps {
    /// Seconds, without end.
    fn drawn(self, mean: f64, seed: u64) -> Box<dyn Iterator<Item = f64> + Send> {
        let mut random = StdRng::seed_from_u64(seed);
        match self {
            Self::Even => Box::new(iter::repeat(mean)),
            Self::Poisson => {
                let gaps = Exp::new(1.0 / mean).expect("a rate is above 0");
                Box::new(iter::repeat_with(move || gaps.sample(&mut random)))
            }
            Self::Bursty(shape) => {
                let gaps = Gamma::new(shape, mean / shape).expect("shape and rate are above 0");
                Box::new(iter::repeat_with(move || gaps.sample(&mut random)))
            }
        }
    }
}

/// 0, and then what has come together after each gap.
fn sums(gaps: impl Iterator<Item = f64>) -> impl Iterator<Item = Duration> {
    let mut due = 0.0;
    gaps.map(move |gap| {
        let now = due;
        due += gap;
        Duration::try_from_secs_f64(now).unwrap_or(Duration::MAX)
    })
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Streams(1) => f.write_str("one at a time"),
            Self::Streams(streams) => write!(f, "{streams} streams"),
            Self::Rate { per_second, gaps } => write!(f, "{per_second} requests/s ({gaps})"),
            Self::At(_) => f.write_str("requests at the times of the file"),
        }
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson => f.write_str("Poisson"),
            Self::Bursty(shape) => write!(f, "bursty, shape {shape}"),
            Self::Even => f.write_str("even"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean of twenty thousand gaps at 50 requests a second, as a share of what it should be; and their standard
    /// deviation as a share of the mean.
    fn gaps(gaps: Gaps, seed: u64) -> (f64, f64) {
        let arrivals = Arrivals::Rate { per_second: 50.0, gaps };
        let due: Vec<f64> = arrivals.due(seed).unwrap().take(20_001).map(|due| due.as_secs_f64()).collect();
        assert_eq!(due[0], 0.0);
        let gaps: Vec<f64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (mean * 50.0, variance.sqrt() / mean)
    }

    #[test]
    fn poisson_arrivals_come_at_their_rate_and_are_as_uneven_as_chance() {
        let (mean, spread) = gaps(Gaps::Poisson, 3);
        // Twenty thousand draws: 3 % is four standard deviations of the mean, 10 % about as many of the other.
        assert!((mean - 1.0).abs() < 0.03 && (spread - 1.0).abs() < 0.1, "{mean} {spread}");
    }

    #[test]
    fn bursty_arrivals_come_at_their_rate_and_vary_by_their_shape() {
        for (shape, expected) in [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)] {
            let (mean, spread) = gaps(Gaps::Bursty(shape), 3);
            // Four standard deviations of the mean of the most uneven.
            assert!((mean - 1.0).abs() < 0.06 && (spread / expected - 1.0).abs() < 0.1, "{shape}: {mean} {spread}");
        }
    }

    #[test]
    fn even_arrivals_are_all_as_far_apart() {
        let (mean, spread) = gaps(Gaps::Even, 3);
        assert!((mean - 1.0).abs() < 1e-6 && spread < 1e-6, "{mean} {spread}");
    }

    #[test]
    fn a_seed_gives_the_same_moments_again_and_another_one_others() {
        let moments = |seed| -> Vec<Duration> {
            let arrivals = Arrivals::Rate { per_second: 3.0, gaps: Gaps::Bursty(0.5) };
            arrivals.due(seed).unwrap().take(20).collect()
        };
        assert_eq!(moments(1), moments(1));
        assert_ne!(moments(1), moments(2));
    }

    #[test]
    fn times_of_a_file_are_due_as_they_are() {
        let times = [Duration::ZERO, Duration::from_millis(3)];
        let due: Vec<Duration> = Arrivals::At(times.into()).due(1).unwrap().collect();
        assert_eq!(due, times);
    }
}
