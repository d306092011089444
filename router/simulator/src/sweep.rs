//! The same traffic at growing rates: where more load stops paying, and how much of it keeps a promise.

use std::fmt;

use serde::Serialize;

use crate::report::{Report, number};

/// Rates to try, in requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub low: f64,
    pub high: f64,
    pub step: f64,
}

/// What answers must keep, in milliseconds; `None`: nothing. The p99 counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    pub ttft_ms: Option<f64>,
    pub itl_ms: Option<f64>,
}

/// The figures at each rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    pub points: Vec<Point>,
    /// The rate with the greatest requests/s ÷ mean e2e: Kleinrock's *power*. Below it, load is cheap; above it, latency
    /// grows faster than throughput.
    pub knee: f64,
    pub limits: Limits,
    /// The highest rate up to which every tried one keeps the limits, without refusing anybody. `None`: not even the
    /// lowest.
    pub highest_within_limits: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Requests a second.
    pub rate: f64,
    pub report: Report,
}

impl Rates {
    /// Reads `LOW..HIGH`, in steps of 1, or `LOW..HIGH:STEP`.
    pub fn parse(text: &str) -> Option<Self> {
        let (range, step) = text.split_once(':').unwrap_or((text, "1"));
        let (low, high) = range.split_once("..")?;
        let positive = |text: &str| text.parse::<f64>().ok().filter(|value| (1e-3..=1e6).contains(value));
        let rates = Self { low: positive(low)?, high: positive(high)?, step: positive(step)? };
        (rates.low <= rates.high && rates.count() <= Self::MOST).then_some(rates)
    }

    /// A sweep of more points would run for hours.
    const MOST: u32 = 1000;

    fn count(&self) -> u32 {
        ((self.high - self.low) / self.step + 1e-9) as u32 + 1
    }

    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        (0..self.count()).map(|index| self.low + f64::from(index) * self.step)
    }
}

impl Limits {
    fn keeps(&self, report: &Report) -> bool {
        let within = |limit: Option<f64>, p99: Option<f64>| match (limit, p99) {
            (Some(limit), Some(p99)) => p99 <= limit,
            _ => true,
        };
        let latencies = &report.latencies;
        report.rejected + report.deadline_missed == 0
            && within(self.ttft_ms, latencies.ttft_ms.p99)
            && within(self.itl_ms, latencies.itl_ms.p99)
    }
}

impl Sweep {
    /// Runs `at` for every rate.
    ///
    /// # Errors
    ///
    /// The first one of `at`.
    pub fn run<E>(rates: Rates, limits: Limits, mut at: impl FnMut(f64) -> Result<Report, E>) -> Result<Self, E> {
        let points = rates.iter().map(|rate| Ok(Point { rate, report: at(rate)? }));
        let points = points.collect::<Result<Vec<_>, E>>()?;
        let best = points.iter().max_by(|a, b| a.power().total_cmp(&b.power()));
        let kept = points.iter().take_while(|point| limits.keeps(&point.report));
        Ok(Self {
            knee: best.map_or(rates.low, |point| point.rate),
            limits,
            highest_within_limits: kept.last().map(|point| point.rate),
            points,
        })
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings are always JSON")
    }
}

impl Point {
    fn power(&self) -> f64 {
        self.report.latencies.e2e_ms.mean.map_or(0.0, |mean| self.report.requests_per_s / mean.max(1e-3))
    }
}

/// The table for people.
impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = ["rate", "requests/s", "tokens/s", "busy, %", "ttft p50", "ttft p99", "itl p99", "e2e mean"];
        columns.iter().try_for_each(|name| write!(f, "{name:>11}"))?;
        writeln!(f)?;
        for Point { rate, report } in &self.points {
            let latencies = &report.latencies;
            let ms = [latencies.ttft_ms.p50, latencies.ttft_ms.p99, latencies.itl_ms.p99, latencies.e2e_ms.mean];
            let busy = report.busy_row_fraction * 100.0;
            let totals = [*rate, report.requests_per_s, report.output_tokens_per_s, busy].map(Some);
            for value in totals.into_iter().chain(ms) {
                write!(f, "{:>11}", value.map_or_else(|| "-".to_owned(), number))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "\nknee (most requests/s per ms of mean e2e): {} requests/s", number(self.knee))?;
        if (self.limits.ttft_ms, self.limits.itl_ms) == (None, None) {
            return Ok(());
        }
        let limit = |name, limit: Option<f64>| limit.map(|ms| format!("{name} p99 ≤ {} ms", number(ms)));
        let limits = [limit("ttft", self.limits.ttft_ms), limit("itl", self.limits.itl_ms)];
        write!(f, "{}: ", limits.into_iter().flatten().collect::<Vec<_>>().join(" and "))?;
        match self.highest_within_limits {
            Some(rate) => writeln!(f, "kept up to {} requests/s", number(rate)),
            None => writeln!(f, "not kept even at the lowest rate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CostModel, Preset, PresetKnobs, simulate};
    use headrace_scheduler::Config;

    fn sweep(limits: Limits) -> Sweep {
        let rates = Rates::parse("2..20:6").expect("rates");
        let config = Config { max_batch_size: 4, ..Config::default() };
        Sweep::run(rates, limits, |rate| {
            let workload = Preset::Seed.workload(PresetKnobs { rate, requests: 100, ..PresetKnobs::default() });
            simulate(&workload, &config, &CostModel::CPU_SMOLLM2).map(|run| Report::of(&run))
        })
        .expect("never stuck")
    }

    #[test]
    fn rates_are_read_with_and_without_a_step() {
        let rates = |text| Rates::parse(text).map(|rates| rates.iter().collect::<Vec<f64>>());
        assert_eq!(rates("1..4"), Some(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(rates("0.5..2:0.5"), Some(vec![0.5, 1.0, 1.5, 2.0]));
        for wrong in ["", "4", "4..1", "0..3", "1..2:0", "a..b", "1..1000000"] {
            assert_eq!(Rates::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn limits_that_only_low_rates_keep_give_a_rate_in_between() {
        let free = sweep(Limits::default());
        assert_eq!(free.highest_within_limits, Some(20.0));
        let ttft = |point: &Point| point.report.latencies.ttft_ms.p99.expect("answers");
        let ttft_ms = Some(ttft(&free.points[1]));
        assert_eq!(sweep(Limits { ttft_ms, itl_ms: None }).highest_within_limits, Some(8.0));
        assert_eq!(sweep(Limits { ttft_ms: Some(1.0), itl_ms: None }).highest_within_limits, None);
    }
}
