//! Many durations in five numbers.

use headrace_scheduler::Micros;
use serde::Serialize;

/// Milliseconds; `None` (JSON `null`) where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

impl Figures {
    /// Percentiles are by nearest rank: p90 is the smallest duration that at least 90 % do not exceed, so it is always
    /// one that was measured.
    pub fn of(mut durations: Vec<Micros>) -> Self {
        durations.sort_unstable();
        let percentile = |percent: usize| {
            let rank = (durations.len() * percent).div_ceil(100).max(1);
            durations.get(rank - 1).map(|&duration| milliseconds(duration))
        };
        let sum: u64 = durations.iter().map(|duration| duration.0).sum();
        let mean = sum.checked_div(durations.len() as u64).map(|mean| milliseconds(Micros(mean)));
        Self { mean, p50: percentile(50), p90: percentile(90), p99: percentile(99), max: percentile(100) }
    }
}

pub(crate) fn milliseconds(duration: Micros) -> f64 {
    duration.0 as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_ms(durations: impl IntoIterator<Item = u64>) -> Figures {
        Figures::of(durations.into_iter().map(|ms| Micros(ms * 1000)).collect())
    }

    #[test]
    fn percentiles_are_durations_that_were_measured() {
        let figures = of_ms((1..=200).rev());
        let expected =
            Figures { mean: Some(100.5), p50: Some(100.0), p90: Some(180.0), p99: Some(198.0), max: Some(200.0) };
        assert_eq!(figures, expected);
    }

    #[test]
    fn ranks_are_rounded_up() {
        let figures = of_ms([10, 20, 30]);
        assert_eq!((figures.p50, figures.p90, figures.p99), (Some(20.0), Some(30.0), Some(30.0)));
    }

    #[test]
    fn one_duration_is_all_percentiles_and_none_is_none() {
        assert_eq!(of_ms([7]).p50, Some(7.0));
        assert_eq!(of_ms([7]).p99, Some(7.0));
        assert_eq!(of_ms([]), Figures::default());
    }
}
