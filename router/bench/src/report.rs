//! The figures of a run.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::goodput::Goodput;
use crate::load::{Arrivals, Gaps};
use crate::run::Bench;
use crate::tally::Tally;
use crate::timeline::Moment;
use crate::usage::Cpu;

/// Times are milliseconds unless their names say otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub url: String,
    pub api: String,
    pub workload: String,
    /// How requests were started, for people.
    pub arrivals: String,
    /// Of a closed loop.
    pub streams: Option<u32>,
    /// Requests a second that were asked of an open loop.
    pub rate: Option<f64>,
    /// Shape of the gamma distribution of the times between requests, where there is one.
    pub burstiness: Option<f64>,
    pub seed: u64,
    /// Asked of the whole answers together.
    pub output_tokens_asked: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Answered in full.
    pub whole: u64,
    /// Of these, with fewer tokens than asked.
    pub short: u64,
    /// Of these, with more tokens than asked.
    pub long: u64,
    pub failed: u64,
    /// Sentence → how many requests failed with it.
    pub failures: BTreeMap<String, u64>,
    /// Kind of failure, such as `status 429` or `timeout` → how many requests failed so.
    pub failure_kinds: BTreeMap<String, u64>,
    /// The sentence of the first one.
    pub first_failure: Option<String>,
    /// Of whole answers.
    pub output_tokens: u64,
    /// Of whole answers, where the server counts them.
    pub prompt_tokens: u64,
    pub output_tokens_per_s: f64,
    pub requests_per_s: f64,
    /// Where limits were given.
    pub goodput: Option<Goodput>,
    /// Tokens that came together, on average.
    pub tokens_per_read: f64,
    /// From the request to its first token.
    pub ttft_ms: Percentiles,
    /// From one token to the next; 0 for tokens that come together.
    pub itl_ms: Percentiles,
    /// An answer's time per token after the first.
    pub tpot_ms: Percentiles,
    /// From the request to the last token.
    pub e2e_ms: Percentiles,
    /// By how much this client sent the requests of an open loop later than they were due.
    pub late_ms: Option<Percentiles>,
    /// CPU of this process.
    pub client_cpu: CpuFigures,
    /// CPU of the server's process during the run.
    pub server_cpu: Option<CpuFigures>,
    /// CPU of the server's process and its children from start to end, warm-up included, where it was started for the
    /// run.
    pub server_life_cpu: Option<CpuFigures>,
    /// What only pictures show.
    #[serde(skip)]
    pub curves: Curves,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuFigures {
    pub user_s: f64,
    pub system_s: f64,
    /// Cores that it kept busy, on average over the run.
    pub cores: f64,
    /// Microseconds, of both, for each token of a whole answer.
    pub us_per_token: f64,
}

/// Distributions as (milliseconds, share of all that took at most so long), and what went on when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    pub ttft: Vec<(f64, f64)>,
    pub itl: Vec<(f64, f64)>,
    pub e2e: Vec<(f64, f64)>,
    pub timeline: Vec<Moment>,
}

impl Report {
    pub(crate) fn new(bench: &Bench, tally: &Tally, took: Duration, client: Cpu, server: Option<Cpu>) -> Self {
        let seconds = took.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let (streams, rate, burstiness) = match bench.load.arrivals {
            Arrivals::Streams(streams) => (Some(streams), None, None),
            Arrivals::Rate { per_second, gaps: Gaps::Bursty(shape) } => (None, Some(per_second), Some(shape)),
            Arrivals::Rate { per_second, .. } => (None, Some(per_second), None),
            Arrivals::At(_) => (None, None, None),
        };
        let failed = tally.failures.values().sum();
        let cpu = |cpu| CpuFigures::new(cpu, seconds, tally.tokens);
        Self {
            url: bench.target.to_string(),
            api: bench.target.api().to_string(),
            workload: bench.workload.name.clone(),
            arrivals: bench.load.arrivals.to_string(),
            streams,
            rate,
            burstiness,
            seed: bench.workload.seed,
            output_tokens_asked: tally.asked,
            seconds,
            whole: tally.whole,
            short: tally.short,
            long: tally.long,
            failed,
            failures: sorted(&tally.failures),
            failure_kinds: sorted(&tally.kinds),
            first_failure: tally.first_failure.clone(),
            output_tokens: tally.tokens,
            prompt_tokens: tally.prompt_tokens,
            output_tokens_per_s: per_second(tally.tokens),
            requests_per_s: per_second(tally.whole),
            goodput: Goodput::new(bench.limits, tally.good, tally.good_tokens, tally.whole + failed, seconds),
            tokens_per_read: tally.tokens as f64 / tally.reads.max(1) as f64,
            ttft_ms: Percentiles::of(&tally.ttft),
            itl_ms: Percentiles::of(&tally.itl),
            tpot_ms: Percentiles::of(&tally.tpot),
            e2e_ms: Percentiles::of(&tally.e2e),
            late_ms: (!tally.late.is_empty()).then(|| Percentiles::of(&tally.late)),
            client_cpu: cpu(client),
            server_cpu: server.map(cpu),
            server_life_cpu: None,
            curves: Curves::of(tally),
        }
    }

    /// Adds what a server used that was started for the run and has ended.
    pub fn with_server_life(self, life: Cpu) -> Self {
        let life = CpuFigures::new(life, self.seconds, self.output_tokens);
        Self { server_life_cpu: Some(life), ..self }
    }
}

fn sorted(counts: &HashMap<String, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, &count)| (name.clone(), count)).collect()
}

impl Percentiles {
    /// Of microseconds, in milliseconds; zeros where there are none.
    fn of(micros: &Histogram<u64>) -> Self {
        if micros.is_empty() {
            return Self::default();
        }
        let at = |percentile| micros.value_at_percentile(percentile) as f64 / 1e3;
        Self { mean: micros.mean() / 1e3, p50: at(50.0), p90: at(90.0), p99: at(99.0), max: micros.max() as f64 / 1e3 }
    }
}

impl CpuFigures {
    fn new(cpu: Cpu, seconds: f64, tokens: u64) -> Self {
        let used = cpu.total().as_secs_f64();
        Self {
            user_s: cpu.user.as_secs_f64(),
            system_s: cpu.system.as_secs_f64(),
            cores: if seconds > 0.0 { used / seconds } else { 0.0 },
            us_per_token: used * 1e6 / tokens.max(1) as f64,
        }
    }
}

impl Curves {
    fn of(tally: &Tally) -> Self {
        Self {
            ttft: distribution(&tally.ttft),
            itl: distribution(&tally.itl),
            e2e: distribution(&tally.e2e),
            timeline: tally.timeline.moments(MOMENTS),
        }
    }
}

/// As few points as a picture shows: one where the share has grown enough, and the last.
fn distribution(micros: &Histogram<u64>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut count = 0;
    let all = micros.len() as f64;
    for step in micros.iter_recorded() {
        count += step.count_since_last_iteration();
        let share = count as f64 / all;
        if count == micros.len() || points.last().is_none_or(|last| share - last.1 >= FINEST_SHARE) {
            points.push((step.value_iterated_to() as f64 / 1e3, share));
        }
    }
    points
}

const FINEST_SHARE: f64 = 0.004;
const MOMENTS: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_as_fine_as_a_picture_and_goes_up_to_all() {
        let mut micros = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).unwrap();
        (1..=100_000).for_each(|micro| micros.record(micro).unwrap());
        let points = distribution(&micros);
        assert!((200..=260).contains(&points.len()), "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
        let (ms, share) = points[points.len() - 1];
        assert!((ms / 100.0 - 1.0).abs() < 2e-3 && share == 1.0);
        let half = points.iter().find(|point| point.1 >= 0.5).unwrap();
        assert!((half.0 / 50.0 - 1.0).abs() < 0.02, "{half:?}");
    }
}
