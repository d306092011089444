//! Runs at growing loads, and the load up to which a server keeps up.

use std::fmt;

use serde::Serialize;

use crate::report::Report;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Requests a second of an open loop.
    Rate,
    /// Streams of a closed loop.
    Concurrency,
}

/// Points in the order of their load.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    pub of: Axis,
    /// The load of the point after which more load is of no use; see [`knee`].
    pub knee: Option<f64>,
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub load: f64,
    #[serde(flatten)]
    pub report: Report,
}

impl Sweep {
    pub fn new(of: Axis, points: Vec<Point>) -> Self {
        let figures: Vec<Figure> = points.iter().map(Figure::of).collect();
        let knee = knee(&figures).map(|point| points[point].load);
        Self { of, knee, points }
    }
}

/// What the knee depends on.
#[derive(Clone, Copy, Debug)]
struct Figure {
    good_share: Option<f64>,
    output_tokens_per_s: f64,
}

impl Figure {
    fn of(point: &Point) -> Self {
        let Report { goodput, output_tokens_per_s, .. } = &point.report;
        Self { good_share: goodput.map(|goodput| goodput.share), output_tokens_per_s: *output_tokens_per_s }
    }
}

/// With limits: the highest load at which [`GOOD`] of the requests keep them; perhaps none does. Without: the last load
/// before the first one that adds less than [`GROWTH`] to the output tokens/s; perhaps all add more.
fn knee(points: &[Figure]) -> Option<usize> {
    if points.iter().any(|point| point.good_share.is_some()) {
        return points.iter().rposition(|point| point.good_share.is_some_and(|share| share >= GOOD));
    }
    let grows = |pair: &[Figure]| pair[1].output_tokens_per_s >= pair[0].output_tokens_per_s * (1.0 + GROWTH);
    let answered = points.first().is_some_and(|first| first.output_tokens_per_s > 0.0);
    let last = points.windows(2).take_while(|pair| grows(pair)).count();
    (answered && last + 1 < points.len()).then_some(last)
}

/// Share of the requests.
const GOOD: f64 = 0.9;
/// Share of the throughput.
const GROWTH: f64 = 0.05;

impl Axis {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Rate => "requests/s",
            Self::Concurrency => "streams",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "rate",
            Self::Concurrency => "concurrency",
        })
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.points.first().map(|point| &point.report) else { return Ok(()) };
        writeln!(f, "{} ({}), {}; times in ms\n", first.url, first.api, first.workload)?;
        write!(f, "{:>12} {:>9} {:>8}", self.of.unit(), "tokens/s", "req/s")?;
        write!(f, " {:>9} {:>9} {:>9} {:>9} {:>10}", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "E2E p99")?;
        writeln!(f, " {:>7} {:>6} {:>6}", "good %", "short", "failed")?;
        for Point { load, report } in &self.points {
            let mark = if self.knee == Some(*load) { "  <- knee" } else { "" };
            let good = report.goodput.map_or("-".to_owned(), |goodput| format!("{:.1}", goodput.share * 100.0));
            write!(f, "{load:>12} {:>9.1} {:>8.2}", report.output_tokens_per_s, report.requests_per_s)?;
            write!(f, " {:>9.2} {:>9.2}", report.ttft_ms.p50, report.ttft_ms.p99)?;
            write!(f, " {:>9.2} {:>9.2} {:>10.2}", report.itl_ms.p50, report.itl_ms.p99, report.e2e_ms.p99)?;
            writeln!(f, " {good:>7} {:>6} {:>6}{mark}", report.short, report.failed)?;
        }
        if let Some(goodput) = first.goodput {
            let limits = goodput.limits;
            let percent = GOOD * 100.0;
            match self.knee {
                Some(load) => {
                    writeln!(f, "\n{load} {}: the most at which {percent} % are good ({limits})", self.of.unit())?
                }
                None => writeln!(f, "\nat no load are {percent} % good ({limits}); try less load or looser limits")?,
            }
        } else if let Some(load) = self.knee {
            let percent = GROWTH * 100.0;
            writeln!(f, "\n{load} {}: the next load adds less than {percent} % of tokens/s", self.of.unit())?;
        } else if first.output_tokens_per_s > 0.0 {
            writeln!(f, "\nno knee: tokens/s grow up to the highest load; try more")?;
        }
        for Point { load, report } in &self.points {
            for (cause, count) in &report.failures {
                writeln!(f, "{load} {}: {count} x {cause}", self.of.unit())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(tokens_per_s: &[f64]) -> Option<usize> {
        let figure = |&output_tokens_per_s| Figure { good_share: None, output_tokens_per_s };
        knee(&tokens_per_s.iter().map(figure).collect::<Vec<_>>())
    }

    fn good(shares: &[f64]) -> Option<usize> {
        let figure = |&share| Figure { good_share: Some(share), output_tokens_per_s: 1.0 };
        knee(&shares.iter().map(figure).collect::<Vec<_>>())
    }

    #[test]
    fn without_limits_the_knee_is_the_last_load_before_throughput_stops_to_grow() {
        assert_eq!(grown(&[100.0, 190.0, 250.0, 255.0, 400.0]), Some(2));
        assert_eq!(grown(&[100.0, 105.0, 110.0]), Some(1));
        assert_eq!(grown(&[100.0, 100.0]), Some(0));
        assert_eq!(grown(&[0.0, 0.0]), None);
    }

    #[test]
    fn without_limits_there_is_no_knee_where_every_load_adds_throughput() {
        assert_eq!(grown(&[100.0, 200.0]), None);
        assert_eq!(grown(&[100.0]), None);
    }

    #[test]
    fn with_limits_it_is_the_highest_load_at_which_nine_in_ten_keep_them() {
        assert_eq!(good(&[1.0, 0.95, 0.9, 0.89, 0.2]), Some(2));
        assert_eq!(good(&[1.0, 0.85, 0.92, 0.1]), Some(2));
        assert_eq!(good(&[0.5, 0.4]), None);
    }
}
