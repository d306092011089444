//! A run as a picture (SVG): rows over time, each request a bar.
//!
//! Prefill is dark, decode light, an idle row shows the ground. Several runs share one time scale, so the shorter
//! picture is the faster run.

use std::fmt::Write;

use headrace_scheduler::Micros;

use crate::figures::milliseconds;
use crate::report::number;
use crate::run::{Bar, Phase, Run};

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 40.0;
const TITLE_HEIGHT: f64 = 22.0;
const AXIS_HEIGHT: f64 = 26.0;
/// Hues are this far apart from one request to the next, so that neighbours differ (the golden angle).
const HUE_STEP: f64 = 137.5;

/// Draws runs below each other, each under its title.
pub fn timeline(runs: &[(String, &Run)]) -> String {
    let longest = runs.iter().map(|(_, run)| run.ended.saturating_sub(run.began)).max().unwrap_or_default();
    let scale = Scale { pixels_per_ms: (WIDTH - 2.0 * MARGIN) / milliseconds(longest).max(1e-3) };
    let mut body = String::new();
    let mut top = 4.0;
    for (title, run) in runs {
        top = panel(&mut body, title, run, &scale, top);
    }
    let height = axis(&mut body, milliseconds(longest), &scale, top);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

struct Scale {
    pixels_per_ms: f64,
}

impl Scale {
    fn x(&self, ms: f64) -> f64 {
        MARGIN + ms * self.pixels_per_ms
    }
}

/// One run; returns where the next may begin.
fn panel(body: &mut String, title: &str, run: &Run, scale: &Scale, top: f64) -> f64 {
    // Few rows can be tall enough for the requests' numbers.
    let row_height = if run.max_batch_size <= 16 { 18.0 } else { 6.0 };
    let rows_top = top + TITLE_HEIGHT;
    let _ = writeln!(body, "<text x=\"{MARGIN}\" y=\"{:.0}\">{}</text>", top + 15.0, escaped(title));
    let width = scale.x(milliseconds(run.ended.saturating_sub(run.began))) - MARGIN;
    let height = f64::from(run.max_batch_size) * row_height;
    let _ = writeln!(
        body,
        "<rect x=\"{MARGIN}\" y=\"{rows_top}\" width=\"{width:.1}\" height=\"{height}\" fill=\"#e8e8e8\"/>"
    );
    run.bars.iter().for_each(|bar| draw(body, bar, run.began, scale, rows_top, row_height));
    rows_top + height + 8.0
}

fn draw(body: &mut String, bar: &Bar, began: Micros, scale: &Scale, rows_top: f64, row_height: f64) {
    let at = |moment: Micros| scale.x(milliseconds(moment.saturating_sub(began)));
    let (left, right) = (at(bar.began), at(bar.ended));
    let top = rows_top + f64::from(bar.row.0) * row_height;
    let lightness = if bar.phase == Phase::Prefill { 35 } else { 75 };
    let hue = (bar.request as f64 * HUE_STEP) % 360.0;
    let (width, height) = ((right - left).max(0.2), row_height - 1.0);
    let _ = writeln!(
        body,
        "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\" fill=\"hsl({hue:.0},60%,{lightness}%)\"/>"
    );
    if bar.phase == Phase::Decode && row_height > 12.0 && width > 22.0 {
        let (x, y) = (left + 4.0, top + 13.0);
        let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y}\" font-size=\"10\">{}</text>", bar.request + 1);
    }
}

/// Ticks at round times, and what the shades mean; returns the picture's height.
fn axis(body: &mut String, longest_ms: f64, scale: &Scale, top: f64) -> f64 {
    let tick = round_step(longest_ms / 8.0);
    let ticks = (longest_ms / tick) as u32;
    for index in 0..=ticks {
        let ms = f64::from(index) * tick;
        let (x, y) = (scale.x(ms), top + 10.0);
        let unit = if index == ticks { " ms" } else { "" };
        let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}{unit}</text>", label(ms));
    }
    let y = top + AXIS_HEIGHT;
    let mut x = MARGIN;
    for (fill, word) in [("hsl(210,60%,35%)", "prefill"), ("hsl(210,60%,75%)", "decode"), ("#e8e8e8", "idle row")] {
        let _ = writeln!(body, "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"10\" fill=\"{fill}\"/>", y - 6.0);
        let _ = writeln!(body, "<text x=\"{}\" y=\"{}\">{word}</text>", x + 16.0, y + 3.0);
        x += 80.0;
    }
    y + 12.0
}

fn label(ms: f64) -> String {
    if ms == ms.round() { format!("{ms:.0}") } else { number(ms) }
}

/// The nearest 1, 2 or 5 with zeros, not below.
fn round_step(least: f64) -> f64 {
    let power = 10.0_f64.powf(least.max(1e-3).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|&step| step >= least).unwrap_or(10.0 * power)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use headrace_scheduler::{Config, Tokens};

    use super::*;
    use crate::{Arrival, CostModel, Workload, simulate};

    fn run(outputs: &[u32]) -> Run {
        let arrivals = outputs.iter().map(|&output| Arrival::new(Micros(0), Tokens(1), Tokens(output)));
        let config = Config { max_batch_size: 2, ..Config::default() };
        simulate(&Workload::new(arrivals.collect()), &config, &CostModel::UNIT).expect("never stuck")
    }

    #[test]
    fn every_request_has_a_dark_bar_and_a_light_one_behind_it() {
        let run = run(&[4, 2, 3]);
        let bars: Vec<_> = run
            .bars
            .iter()
            .map(|bar| (bar.row.0, bar.request, bar.phase, bar.began.0 / 1000, bar.ended.0 / 1000))
            .collect();
        let expected = [
            (0, 0, Phase::Prefill, 0, 1),
            (0, 0, Phase::Decode, 1, 4),
            (1, 1, Phase::Prefill, 0, 1),
            (1, 1, Phase::Decode, 1, 2),
            (1, 2, Phase::Prefill, 2, 3),
            (1, 2, Phase::Decode, 3, 5),
        ];
        assert_eq!(bars, expected);
        let picture = timeline(&[("two <rows>".to_owned(), &run)]);
        let shade = |lightness| picture.matches(&format!("%,{lightness}%)")).count();
        assert_eq!((shade(35), shade(75)), (3 + 1, 3 + 1), "a bar each and the legend");
        assert!(picture.contains("two &lt;rows&gt;"));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!([0.9, 1.1, 11.0, 45.0, 90.0].map(round_step), [1.0, 2.0, 20.0, 50.0, 100.0]);
    }
}
