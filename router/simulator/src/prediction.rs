//! A recorded run again: its requests, at their times, with their lengths, on a model of its machine.

use std::fmt;

use headrace_scheduler::{Micros, Tokens};
use serde_json::{Value, json};

use crate::figures::Figures;
use crate::recording::{End, Recorded, Recording};
use crate::report::{Latencies, Report, number};
use crate::run::{Ending, Outcome, Run};
use crate::workload::{Arrival, NamedBlocks, Workload};

impl Recording {
    /// The requests that came while the trace was written.
    ///
    /// - An answer is as long as it was. Of one that was refused, or dropped before its first token, nobody knows; it
    ///   gets the mean length of the others, or what its client allowed if that is less.
    /// - A client that left leaves again after the same time, and its answer goes no further than a token beyond what
    ///   there was. So does one whose answer was under way when the trace ended.
    /// - What failed on the shard ends there, and otherwise does not fail.
    pub fn workload(&self) -> Workload {
        let whole: Vec<u64> =
            self.requests.iter().filter(|request| request.end == Some(End::Itself)).map(length).collect();
        let mean = whole.iter().sum::<u64>().checked_div(whole.len() as u64).unwrap_or(1).max(1);
        let mean = Tokens(u32::try_from(mean).unwrap_or(u32::MAX));
        Workload::new(self.requests.iter().map(|request| self.arrival(request, mean)).collect())
    }

    fn arrival(&self, request: &Recorded, mean: Tokens) -> Arrival {
        let of = &request.arrival;
        let until = |moment: Micros| moment.saturating_sub(request.at);
        let had = Tokens(request.tokens.len() as u32);
        let missed = request.planned.is_none() && of.deadline.is_some_and(|deadline| deadline <= self.ended);
        let (output, leaves) = match request.end {
            _ if !request.taken => (mean, None),
            Some(End::Itself | End::Failed) if had > Tokens::ZERO => (had, None),
            Some(End::Left(at)) => (beyond(had, mean), Some(until(at))),
            None if !missed => (beyond(had, mean), Some(until(self.ended))),
            _ => (mean, None),
        };
        // A request that is refused whatever it waits for may allow nothing.
        let max_new = of.max_new_tokens.max(Tokens(1));
        Arrival {
            output: output.min(max_new),
            max_new,
            tenant: of.tenant.0.to_string(),
            priority: of.priority,
            deadline: of.deadline.map(until),
            blocks: Some(NamedBlocks {
                size: self.config.block_size,
                numbers: request.blocks.clone(),
                root: of.root,
                reads_cache: of.reads_cache,
            }),
            leaves,
            ..Arrival::new(request.at, of.prompt, output)
        }
    }

    /// Latencies as they were.
    fn latencies(&self) -> Latencies {
        let outcomes: Vec<Outcome> = self.requests.iter().map(|request| self.outcome(request)).collect();
        Latencies::of(outcomes.iter())
    }

    fn outcome(&self, request: &Recorded) -> Outcome {
        let last = request.tokens.last().copied().unwrap_or(request.at);
        let ending = match request.end {
            _ if !request.taken => (Ending::Rejected, request.at),
            Some(End::Itself) => (Ending::Answered, last),
            Some(End::Left(at)) => (Ending::Left, at),
            Some(End::Failed) => (Ending::Left, last),
            None => (Ending::Left, self.ended),
        };
        Outcome {
            tenant: request.arrival.tenant.0.to_string(),
            priority: request.arrival.priority,
            arrived: request.at,
            planned: request.planned,
            tokens: request.tokens.clone(),
            ending: Some(ending),
            retry_after: None,
        }
    }
}

fn length(request: &Recorded) -> u64 {
    request.tokens.len() as u64
}

/// The length of an answer that was cut off.
fn beyond(had: Tokens, mean: Tokens) -> Tokens {
    if had == Tokens::ZERO { mean } else { had + Tokens(1) }
}

/// What was, beside what a simulation says.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    pub requests: usize,
    /// Requests that ran in the trace and came before it; they are in neither side's figures.
    pub left_out: usize,
    pub recorded: Latencies,
    pub predicted: Report,
}

impl Prediction {
    /// `run` is a simulation of the recording's [`workload`](Recording::workload).
    pub fn of(recording: &Recording, run: &Run) -> Self {
        Self {
            requests: recording.requests.len(),
            left_out: recording.left_out,
            recorded: recording.latencies(),
            predicted: Report::of(run),
        }
    }

    pub fn json(&self) -> Value {
        let differences = self.lines().map(|(name, recorded, predicted)| (name, difference(recorded, predicted)));
        json!({
            "requests": self.requests,
            "left_out": self.left_out,
            "recorded": self.recorded,
            "predicted": self.predicted,
            "difference_percent": differences.collect::<std::collections::BTreeMap<_, _>>(),
        })
    }

    /// Name, recorded and predicted milliseconds.
    fn lines(&self) -> impl Iterator<Item = (String, Option<f64>, Option<f64>)> {
        let of = [|figures: &Figures| figures.p50, |figures: &Figures| figures.p99];
        let pairs = self.recorded.named().into_iter().zip(self.predicted.latencies.named());
        pairs.flat_map(move |((name, recorded), (_, predicted))| {
            let percentiles = ["p50", "p99"].into_iter().zip(of);
            percentiles.map(move |(rank, of)| (format!("{name}_{rank}"), of(recorded), of(predicted)))
        })
    }
}

/// Of the recorded one, in percent; `None` where there is nothing to compare.
fn difference(recorded: Option<f64>, predicted: Option<f64>) -> Option<f64> {
    let (recorded, predicted) = (recorded?, predicted?);
    (recorded > 0.0).then(|| ((predicted / recorded - 1.0) * 1e4).round() / 100.0)
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        writeln!(f, "requests: {}, and {} from before the trace left out", self.requests, self.left_out)?;
        writeln!(f, "\n{:<18} {:>10} {:>10} {:>12}", "latency, ms", "recorded", "simulated", "difference")?;
        for (name, recorded, predicted) in self.lines() {
            let percent = difference(recorded, predicted);
            let percent = percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.1} %"));
            let name = name.replace('_', " ");
            writeln!(f, "{name:<18} {:>10} {:>10} {percent:>12}", cell(recorded), cell(predicted))?;
        }
        write!(f, "\nsimulated:\n{}", self.predicted)
    }
}

#[cfg(test)]
mod tests;
