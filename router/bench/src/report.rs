//! The figures of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load::Arrivals;
use crate::run::Bench;
use crate::tally::Tally;
use crate::usage::Cpu;

/// Times are milliseconds unless their names say otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub url: String,
    pub api: String,
    /// Of a closed loop.
    pub streams: Option<u32>,
    /// Requests a second that were asked of an open loop.
    pub rate: Option<f64>,
    /// Asked of each answer.
    pub output_tokens_asked: u32,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Answered in full.
    pub whole: u64,
    /// Of these, with fewer tokens than asked.
    pub short: u64,
    pub failed: u64,
    /// Sentence → how many requests failed with it.
    pub failures: BTreeMap<String, u64>,
    /// Of whole answers.
    pub output_tokens: u64,
    /// Of whole answers, where the server counts them.
    pub prompt_tokens: u64,
    pub output_tokens_per_s: f64,
    pub requests_per_s: f64,
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
    /// CPU of this process.
    pub client_cpu: CpuFigures,
    /// CPU of the server's process during the run.
    pub server_cpu: Option<CpuFigures>,
    /// CPU of the server's process and its children from start to end, warm-up included, where it was started for the
    /// run.
    pub server_life_cpu: Option<CpuFigures>,
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
    /// Microseconds, of both, for each token of a whole answer.
    pub us_per_token: f64,
}

impl Report {
    pub(crate) fn new(bench: &Bench, tally: &Tally, took: Duration, client: Cpu, server: Option<Cpu>) -> Self {
        let seconds = took.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let (streams, rate) = match bench.load.arrivals {
            Arrivals::Streams(streams) => (Some(streams), None),
            Arrivals::Rate(rate) => (None, Some(rate)),
        };
        Self {
            url: bench.target.to_string(),
            api: bench.target.api().to_string(),
            streams,
            rate,
            output_tokens_asked: bench.workload.output_tokens,
            seconds,
            whole: tally.whole,
            short: tally.short,
            failed: tally.failures.values().sum(),
            failures: tally.failures.iter().map(|(cause, &count)| (cause.clone(), count)).collect(),
            output_tokens: tally.tokens,
            prompt_tokens: tally.prompt_tokens,
            output_tokens_per_s: per_second(tally.tokens),
            requests_per_s: per_second(tally.whole),
            tokens_per_read: tally.tokens as f64 / tally.reads.max(1) as f64,
            ttft_ms: Percentiles::of(&tally.ttft),
            itl_ms: Percentiles::of(&tally.itl),
            tpot_ms: Percentiles::of(&tally.tpot),
            e2e_ms: Percentiles::of(&tally.e2e),
            client_cpu: CpuFigures::new(client, tally.tokens),
            server_cpu: server.map(|server| CpuFigures::new(server, tally.tokens)),
            server_life_cpu: None,
        }
    }

    /// Adds what a server used that was started for the run and has ended.
    pub fn with_server_life(self, life: Cpu) -> Self {
        Self { server_life_cpu: Some(CpuFigures::new(life, self.output_tokens)), ..self }
    }

    /// One line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings, and keys that are strings")
    }
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
    fn new(cpu: Cpu, tokens: u64) -> Self {
        Self {
            user_s: cpu.user.as_secs_f64(),
            system_s: cpu.system.as_secs_f64(),
            us_per_token: cpu.total().as_secs_f64() * 1e6 / tokens.max(1) as f64,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = match (self.streams, self.rate) {
            (_, Some(rate)) => format!("{rate} requests a second"),
            (streams, None) => format!("{} streams", streams.unwrap_or(0)),
        };
        writeln!(f, "{} ({}), {load}, {} tokens each", self.url, self.api, self.output_tokens_asked)?;
        writeln!(
            f,
            "{} answers in {:.2} s, {} of them short, {} failed: {:.1} tokens/s, {:.2} requests/s, {:.1} tokens a read",
            self.whole,
            self.seconds,
            self.short,
            self.failed,
            self.output_tokens_per_s,
            self.requests_per_s,
            self.tokens_per_read
        )?;
        writeln!(f, "\n{:18} {:>10} {:>10} {:>10} {:>10} {:>10}", "ms", "mean", "p50", "p90", "p99", "max")?;
        let rows = [
            ("first token", &self.ttft_ms),
            ("between tokens", &self.itl_ms),
            ("per token", &self.tpot_ms),
            ("whole answer", &self.e2e_ms),
        ];
        for (name, Percentiles { mean, p50, p90, p99, max }) in rows {
            writeln!(f, "{name:18} {mean:>10.3} {p50:>10.3} {p90:>10.3} {p99:>10.3} {max:>10.3}")?;
        }
        writeln!(f, "\n{:18} {:>10} {:>10} {:>14}", "CPU", "user s", "system s", "µs a token")?;
        let processes = [
            ("server", self.server_cpu),
            ("from start to end", self.server_life_cpu),
            ("this client", Some(self.client_cpu)),
        ];
        for (name, cpu) in processes.into_iter().filter_map(|(name, cpu)| Some((name, cpu?))) {
            writeln!(f, "{name:18} {:>10.2} {:>10.2} {:>14.2}", cpu.user_s, cpu.system_s, cpu.us_per_token)?;
        }
        self.failures.iter().try_for_each(|(cause, count)| writeln!(f, "{count} x {cause}"))
    }
}
