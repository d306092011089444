//! A run in figures: for machines as JSON, for people as a table.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use headrace_scheduler::Micros;
use serde::Serialize;

use crate::figures::{Figures, milliseconds};
use crate::run::{Ending, Outcome, Run};

/// The fields and their names are what `headrace simulate --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub steps: u64,
    /// Rows in plans ÷ (steps × max_batch_size).
    pub busy_row_fraction: f64,
    /// From the first arrival until everybody has ended.
    pub makespan_ms: f64,
    /// Of the makespan; so are requests, and only answered ones count.
    pub output_tokens_per_s: f64,
    pub requests_per_s: f64,
    #[serde(flatten)]
    pub latencies: Latencies,
    pub preemptions: u64,
    /// Prompt and answer tokens computed again after a preemption.
    pub recomputed_tokens: u64,
    pub prefix_hit_tokens: u64,
    /// Hit tokens ÷ tokens of admitted requests; 0 if there were none.
    pub prefix_hit_rate: f64,
    /// The most blocks that requests held at a time.
    pub peak_blocks: u32,
    /// Requests not taken, or displaced from a full queue.
    pub rejected: u64,
    /// Of those that were refused and told when to come again, the share that was told between half and twice the time
    /// after which the last of those then waiting had a row; `null` if nobody was, or the queue was drained in half a
    /// second.
    pub retry_after_within_2x: Option<f64>,
    /// Requests dropped since their deadline passed before their first step.
    pub deadline_missed: u64,
    pub tenants: BTreeMap<String, Latencies>,
    /// By band, −100 … 100.
    pub priorities: BTreeMap<i8, Latencies>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// From arrival to first token.
    pub ttft_ms: Figures,
    /// Between two tokens of an answer, over all of them.
    pub itl_ms: Figures,
    /// From arrival to last token, of answered requests.
    pub e2e_ms: Figures,
    /// From arrival until the first step is planned.
    pub queue_ms: Figures,
}

impl Report {
    pub fn of(run: &Run) -> Self {
        let makespan = run.ended.saturating_sub(run.began);
        let per_second = |count: u64| share(count as f64, milliseconds(makespan) / 1000.0);
        let count = |ending| run.requests.iter().filter(|request| request.ended_by(ending)).count() as u64;
        let tokens = run.requests.iter().map(|request| request.tokens.len() as u64).sum();
        let prefix = run.stats.prefix;
        Self {
            steps: run.steps,
            busy_row_fraction: share(run.planned_rows as f64, run.steps as f64 * f64::from(run.max_batch_size)),
            makespan_ms: milliseconds(makespan),
            output_tokens_per_s: per_second(tokens),
            requests_per_s: per_second(count(Ending::Answered)),
            latencies: Latencies::of(run.requests.iter()),
            preemptions: run.stats.preemptions,
            recomputed_tokens: run.stats.recomputed_tokens,
            prefix_hit_tokens: prefix.hit_tokens,
            prefix_hit_rate: share(prefix.hit_tokens as f64, prefix.looked_up_tokens as f64),
            peak_blocks: run.peak_blocks.0,
            rejected: count(Ending::Rejected),
            retry_after_within_2x: retry_after_within_2x(&run.requests),
            deadline_missed: count(Ending::DeadlineMissed),
            tenants: by(run, |request| request.tenant.clone()),
            priorities: by(run, |request| request.priority.band()),
        }
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings are always JSON")
    }

    /// The figures that are not latencies, with their names and as people read them.
    pub(crate) fn totals(&self) -> [(&'static str, String); 11] {
        [
            ("steps", self.steps.to_string()),
            ("busy rows, %", format!("{:.0}", self.busy_row_fraction * 100.0)),
            ("makespan, ms", number(self.makespan_ms)),
            ("output tokens/s", number(self.output_tokens_per_s)),
            ("requests/s", number(self.requests_per_s)),
            ("preemptions", self.preemptions.to_string()),
            ("recomputed tokens", self.recomputed_tokens.to_string()),
            ("prefix hits, %", format!("{:.0}", self.prefix_hit_rate * 100.0)),
            ("peak blocks", self.peak_blocks.to_string()),
            ("rejected", self.rejected.to_string()),
            ("deadline missed", self.deadline_missed.to_string()),
        ]
    }
}

/// The table for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.totals() {
            writeln!(f, "{name:<18} {value:>10}")?;
        }
        writeln!(f, "\n{}", heading("latency, ms"))?;
        f.write_str(&self.latencies.lines(""))?;
        if self.tenants.len() > 1 {
            for (tenant, latencies) in &self.tenants {
                f.write_str(&latencies.lines(&format!("{tenant} ")))?;
            }
        }
        if self.priorities.len() > 1 {
            for (band, latencies) in &self.priorities {
                f.write_str(&latencies.lines(&format!("band {band} ")))?;
            }
        }
        Ok(())
    }
}

impl Latencies {
    pub(crate) fn of<'a>(requests: impl Iterator<Item = &'a Outcome> + Clone) -> Self {
        let of =
            |duration: fn(&Outcome) -> Option<Micros>| Figures::of(requests.clone().filter_map(duration).collect());
        Self {
            ttft_ms: of(Outcome::time_to_first_token),
            itl_ms: Figures::of(requests.clone().flat_map(Outcome::gaps).collect()),
            e2e_ms: of(Outcome::time_to_end),
            queue_ms: of(Outcome::time_in_queue),
        }
    }

    /// With their names, in the order of the JSON.
    pub(crate) fn named(&self) -> [(&'static str, &Figures); 4] {
        [("ttft", &self.ttft_ms), ("itl", &self.itl_ms), ("e2e", &self.e2e_ms), ("queue", &self.queue_ms)]
    }

    fn lines(&self, whose: &str) -> String {
        self.named().into_iter().fold(String::new(), |mut lines, (name, figures)| {
            let Figures { mean, p50, p90, p99, max } = *figures;
            let _ = write!(lines, "{:<18}", format!("{whose}{name}"));
            for value in [mean, p50, p90, p99, max] {
                let _ = write!(lines, " {:>10}", value.map_or_else(|| "-".to_owned(), number));
            }
            lines + "\n"
        })
    }
}

fn heading(first: &str) -> String {
    format!("{first:<18} {:>10} {:>10} {:>10} {:>10} {:>10}", "mean", "p50", "p90", "p99", "max")
}

/// Drained in less, a queue is no measure of a prediction in whole seconds.
const SOON: Micros = Micros(500_000);

impl Outcome {
    fn ended_by(&self, ending: Ending) -> bool {
        self.ending.is_some_and(|(by, _)| by == ending)
    }

    fn since_arrival(&self, moment: Micros) -> Micros {
        moment.saturating_sub(self.arrived)
    }

    fn time_to_first_token(&self) -> Option<Micros> {
        self.tokens.first().map(|&moment| self.since_arrival(moment))
    }

    fn gaps(&self) -> impl Iterator<Item = Micros> + '_ {
        self.tokens.windows(2).map(|pair| pair[1].saturating_sub(pair[0]))
    }

    fn time_to_end(&self) -> Option<Micros> {
        self.ending.filter(|(ending, _)| *ending == Ending::Answered).map(|(_, moment)| self.since_arrival(moment))
    }

    fn time_in_queue(&self) -> Option<Micros> {
        self.planned.map(|moment| self.since_arrival(moment))
    }
}

/// One pass over requests in the order of their arrivals.
fn retry_after_within_2x(requests: &[Outcome]) -> Option<f64> {
    let (mut told, mut within, mut last_planned) = (0_u64, 0_u64, Micros::ZERO);
    for request in requests {
        let drained = last_planned.saturating_sub(request.arrived);
        if let Some(said) = request.retry_after.filter(|_| drained > SOON) {
            told += 1;
            within += u64::from(said.0 <= 2 * drained.0 && drained.0 <= 2 * said.0);
        }
        last_planned = last_planned.max(request.planned.unwrap_or(Micros::ZERO));
    }
    (told > 0).then(|| share(within as f64, told as f64))
}

fn by<K: Ord>(run: &Run, key: impl Fn(&Outcome) -> K) -> BTreeMap<K, Latencies> {
    let mut groups: BTreeMap<K, Vec<&Outcome>> = BTreeMap::new();
    run.requests.iter().for_each(|request| groups.entry(key(request)).or_default().push(request));
    groups.into_iter().map(|(key, requests)| (key, Latencies::of(requests.into_iter()))).collect()
}

/// To six places: what is behind them is noise to a reader and a nuisance in a diff.
fn share(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { (part / whole * 1e6).round() / 1e6 }
}

/// Three or so digits that matter.
pub(crate) fn number(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrives and is planned, or is told to come again, in these seconds.
    fn outcome(arrived: u64, planned: Option<u64>, retry_after: Option<u64>) -> Outcome {
        let moment = |seconds: u64| Micros(seconds * 1_000_000);
        Outcome {
            tenant: String::new(),
            priority: headrace_scheduler::Priority::NORMAL,
            arrived: moment(arrived),
            planned: planned.map(moment),
            tokens: Vec::new(),
            ending: None,
            retry_after: retry_after.map(moment),
        }
    }

    #[test]
    fn who_is_refused_is_told_right_if_the_queue_of_that_moment_was_drained_by_then() {
        let told = |seconds| outcome(2, None, Some(seconds));
        let with = |refused: &[Outcome]| {
            let waiting = [outcome(0, Some(1), None), outcome(1, Some(12), None)];
            retry_after_within_2x(&[&waiting, refused, &[outcome(3, Some(90), None)]].concat())
        };
        // It was drained ten seconds later; who came after the refusal does not count.
        assert_eq!(with(&[told(5), told(20)]), Some(1.0));
        assert_eq!(with(&[told(4), told(5), told(20), told(21)]), Some(0.5));
        assert_eq!(with(&[]), None);
        assert_eq!(retry_after_within_2x(&[outcome(0, Some(2), None), told(9)]), None, "nobody waited any more");
    }
}
