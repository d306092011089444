//! Which pictures a run and a sweep have.

use super::chart::{Axis, Chart, Look, Scale, Series, Shape};
use crate::report::Report;
use crate::sweep::{Point, Sweep};
use crate::timeline::Moment;

/// Requests under way and tokens, over time.
pub(super) fn timeline(report: &Report) -> String {
    let over_time = |title: &str, unit, of: fn(&Moment) -> f64| {
        let points = report.curves.timeline.iter().map(|moment| (moment.at_s, of(moment))).collect();
        let chart = Chart {
            title: title.to_owned(),
            x: Axis { end: Some(report.seconds), ..linear("s") },
            y: linear(unit),
            series: vec![Series { name: title.to_owned(), points, look: Look::Area }],
            marks: Vec::new(),
        };
        chart.draw(Shape::Full)
    };
    over_time("Output tokens", "tokens/s", |moment| moment.tokens_per_s)
        + &over_time("Requests under way", "requests", |moment| moment.running)
}

/// Of the three latencies, with medians, 99th percentiles and limits.
pub(super) fn distributions(report: &Report) -> String {
    let curves = &report.curves;
    let limits = report.goodput.map(|goodput| goodput.limits).unwrap_or_default();
    let all = [
        ("First token (TTFT)", &curves.ttft, &report.ttft_ms, limits.ttft_ms),
        ("Between tokens (ITL)", &curves.itl, &report.itl_ms, None),
        ("Whole answer (E2E)", &curves.e2e, &report.e2e_ms, None),
    ];
    let draw = |(title, points, percentiles, limit): (&str, &Vec<(f64, f64)>, &crate::Percentiles, Option<f64>)| {
        let mut marks = vec![(percentiles.p50, "p50".to_owned()), (percentiles.p99, "p99".to_owned())];
        marks.extend(limit.map(|ms| (ms, "limit".to_owned())));
        let chart = Chart {
            title: title.to_owned(),
            x: Axis { scale: scale_of(points), ..linear("ms") },
            y: Axis { end: Some(100.0), ..linear("%") },
            series: vec![Series {
                name: title.to_owned(),
                points: points.iter().map(|&(ms, share)| (ms, share * 100.0)).collect(),
                look: Look::Line,
            }],
            marks,
        };
        chart.draw(Shape::Third)
    };
    all.map(draw).concat()
}

/// A figure of a run, and what it is called.
type Named = (&'static str, fn(&Report) -> f64);

/// What more load does to throughput and latencies.
pub(super) fn curves(sweep: &Sweep) -> String {
    let reports: Vec<&Report> = sweep.points.iter().map(|point| &point.report).collect();
    let limited = reports.iter().any(|report| report.goodput.is_some());
    let panel = |title: &str, unit, series: Vec<Named>| {
        let series = series.into_iter().map(|(name, of)| line(&sweep.points, name, of)).collect();
        let marks = sweep.knee.map(|load| (load, "knee".to_owned())).into_iter().collect();
        let x = Axis { scale: loads(&sweep.points), ..linear(sweep.of.unit()) };
        let chart = Chart { title: title.to_owned(), x, y: linear(unit), series, marks };
        chart.draw(Shape::Half)
    };
    let mut throughput: Vec<Named> = vec![("all", |report| report.output_tokens_per_s)];
    if limited {
        throughput.push(("good", |report| report.goodput.map_or(0.0, |goodput| goodput.output_tokens_per_s)));
    }
    let mut panels = panel("Output tokens", "tokens/s", throughput);
    panels += &panel("Requests answered", "requests/s", vec![("all", |report| report.requests_per_s)]);
    panels += &panel(
        "First token (TTFT)",
        "ms",
        vec![("p50", |report| report.ttft_ms.p50), ("p99", |report| report.ttft_ms.p99)],
    );
    panels += &panel(
        "Between tokens (ITL)",
        "ms",
        vec![("p50", |report| report.itl_ms.p50), ("p99", |report| report.itl_ms.p99)],
    );
    if limited {
        panels += &panel(
            "Good requests",
            "%",
            vec![("good", |report| report.goodput.map_or(0.0, |goodput| goodput.share * 100.0))],
        );
    }
    panels
}

fn line(points: &[Point], name: &str, of: fn(&Report) -> f64) -> Series {
    let points = points.iter().map(|point| (point.load, of(&point.report))).collect();
    Series { name: name.to_owned(), points, look: Look::Dots }
}

fn linear(unit: &'static str) -> Axis {
    Axis { unit, scale: Scale::Linear, end: None }
}

/// Logarithmic where loads span far: those are mostly doubled from one to the next.
fn loads(points: &[Point]) -> Scale {
    match (points.first(), points.last()) {
        (Some(first), Some(last)) if last.load >= 8.0 * first.load => Scale::Log,
        _ => Scale::Linear,
    }
}

/// Logarithmic where the slowest took many times as long as the median: else nine tenths of the curve would be a wall.
fn scale_of(points: &[(f64, f64)]) -> Scale {
    let median = points.iter().find(|point| point.1 >= 0.5).map_or(0.0, |point| point.0);
    let most = points.last().map_or(0.0, |point| point.0);
    if median > 0.0 && most > 8.0 * median { Scale::Log } else { Scale::Linear }
}
