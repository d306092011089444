//! Line charts as SVG: axes with round ticks, a few series, and marks. Colours are classes that the page's style sets,
//! for light and dark alike.

use std::fmt::Write;

use super::escape;

/// A panel: its title, its axes, and what is drawn.
pub(super) struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// Upright lines: where, and what they mean.
    pub marks: Vec<(f64, String)>,
}

#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub unit: &'static str,
    pub scale: Scale,
    /// The end of a linear axis, which begins at 0; `None`: where the data end.
    pub end: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    /// For what spans many orders; only values above 0 are drawn.
    Log,
}

pub(super) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub look: Look,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Line,
    /// Each point is a measurement of its own: dots that say their values.
    Dots,
    /// The ground under the line is tinted: an amount over time.
    Area,
}

const HEIGHT: f64 = 230.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
/// Room for the names of three marks above each other: values that are near would have theirs in one place.
const TOP: f64 = 38.0;
const MARK_HEIGHT: f64 = 11.0;
const BOTTOM: f64 = 36.0;
/// Colours of the page's style.
const COLOURS: usize = 4;

impl Chart {
    /// A figure of HTML. Nothing where there is nothing to draw.
    pub fn draw(&self, shape: Shape) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let width = shape.width();
        let x = Ruler::new(self.x, points().map(|point| point.0), LEFT, width - RIGHT);
        let y = Ruler::new(self.y, points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        let (Some(x), Some(y)) = (x, y) else { return String::new() };
        let mut body = String::new();
        grid(&mut body, &x, &y, width);
        for (number, series) in self.series.iter().enumerate() {
            draw_series(&mut body, series, &x, &y, number % COLOURS + 1);
        }
        for (row, (at, name)) in self.marks.iter().enumerate() {
            mark(&mut body, &x, *at, name, TOP - 4.0 - row as f64 * MARK_HEIGHT);
        }
        format!(
            "<figure class=\"{}\"><figcaption>{}{}</figcaption>\n<svg viewBox=\"0 0 {width} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n{body}\
             <text class=\"unit\" x=\"{:.0}\" y=\"{:.0}\">{}</text>\n<text class=\"unit\" x=\"4\" y=\"10\">{}</text>\n</svg></figure>\n",
            shape.class(),
            escape(&self.title),
            self.legend(),
            escape(&self.title),
            width - RIGHT,
            HEIGHT - 4.0,
            escape(self.x.unit),
            escape(self.y.unit),
        )
    }

    /// Names of the series, where there are several.
    fn legend(&self) -> String {
        if self.series.len() < 2 {
            return String::new();
        }
        let names = self.series.iter().enumerate().map(|(number, series)| {
            format!("<span class=\"key k{}\">{}</span>", number % COLOURS + 1, escape(&series.name))
        });
        names.collect()
    }
}

/// How much of the page's width a chart has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Third,
    Half,
    Full,
}

impl Shape {
    /// So that texts are of about the same size everywhere.
    fn width(self) -> f64 {
        match self {
            Self::Third => 320.0,
            Self::Half => 480.0,
            Self::Full => 960.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Third => "third",
            Self::Half => "half",
            Self::Full => "full",
        }
    }
}

/// Values of an axis to places of the picture.
struct Ruler {
    scale: Scale,
    from: f64,
    to: f64,
    first: f64,
    last: f64,
    ticks: Vec<f64>,
}

impl Ruler {
    /// `None` where nothing can be drawn.
    fn new(axis: Axis, values: impl Iterator<Item = f64>, first: f64, last: f64) -> Option<Self> {
        let drawn = |value: &f64| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0);
        let (least, most) = values
            .filter(drawn)
            .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        if least > most {
            return None;
        }
        let (from, to, ticks) = match axis.scale {
            Scale::Linear => {
                let end = axis.end.unwrap_or(if most > 0.0 { most } else { 1.0 });
                let step = round_step(end / 5.0);
                let to = if axis.end.is_some() { end } else { (end / step - 1e-9).ceil() * step };
                (0.0, to, (0..=(to / step + 1e-9) as u32).map(|tick| f64::from(tick) * step).collect())
            }
            Scale::Log => {
                let (from, to) = (least / 1.1, most * 1.1);
                (from, to, log_ticks(from, to))
            }
        };
        Some(Self { scale: axis.scale, from, to, first, last, ticks })
    }

    /// `None` outside the axis.
    fn at(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
        };
        (-1e-9..=1.0 + 1e-9).contains(&share).then_some(self.first + share * (self.last - self.first))
    }
}

fn grid(body: &mut String, x: &Ruler, y: &Ruler, width: f64) {
    for &tick in &y.ticks {
        let Some(at) = y.at(tick) else { continue };
        let _ = writeln!(body, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/>", width - RIGHT);
        let _ = writeln!(
            body,
            "<text class=\"left\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 6.0,
            at + 3.5,
            number(tick)
        );
    }
    let floor = HEIGHT - BOTTOM;
    let _ = writeln!(body, "<path class=\"axis\" d=\"M{LEFT} {floor}H{:.1}\"/>", width - RIGHT);
    for &tick in &x.ticks {
        let Some(at) = x.at(tick) else { continue };
        let _ = writeln!(body, "<path class=\"axis\" d=\"M{at:.1} {floor}v4\"/>");
        let _ = writeln!(body, "<text class=\"below\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>", floor + 15.0, number(tick));
    }
}

fn draw_series(body: &mut String, series: &Series, x: &Ruler, y: &Ruler, colour: usize) {
    let places: Vec<(f64, f64)> = series.points.iter().filter_map(|&(px, py)| Some((x.at(px)?, y.at(py)?))).collect();
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return };
    let mut line = String::new();
    for (number, (px, py)) in places.iter().enumerate() {
        let _ = write!(line, "{}{px:.1} {py:.1}", if number == 0 { "M" } else { "L" });
    }
    if series.look == Look::Area {
        let floor = HEIGHT - BOTTOM;
        let _ = writeln!(
            body,
            "<path class=\"area a{colour}\" d=\"{line}L{:.1} {floor}L{:.1} {floor}Z\"/>",
            last.0, first.0
        );
    }
    let _ = writeln!(body, "<path class=\"line l{colour}\" d=\"{line}\"/>");
    if series.look == Look::Dots {
        for &(px, py) in &series.points {
            let (Some(cx), Some(cy)) = (x.at(px), y.at(py)) else { continue };
            let said = format!("{} at {}: {}", series.name, number(px), number(py));
            let _ = writeln!(
                body,
                "<circle class=\"dot d{colour}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4\"><title>{}</title></circle>",
                escape(&said)
            );
        }
    }
}

/// `above`: where its name stands.
fn mark(body: &mut String, x: &Ruler, value: f64, name: &str, above: f64) {
    let Some(at) = x.at(value) else { return };
    let _ = writeln!(body, "<path class=\"mark\" d=\"M{at:.1} {:.1}V{:.1}\"/>", above + 2.0, HEIGHT - BOTTOM);
    let _ = writeln!(body, "<text class=\"below\" x=\"{at:.1}\" y=\"{above:.1}\">{}</text>", escape(name));
}

/// 1, 2 and 5 with zeros, or only 1 where they are many.
fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    let powers = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
    let digits: &[f64] = if to / from > 1e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let ticks = powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
    ticks.filter(|tick| (from..=to).contains(tick)).collect()
}

/// The nearest 1, 2 or 5 with zeros, not below.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|&step| step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// As few digits as tell it from its neighbours: 12,300, 41, 2.5, 0.04.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.01 => 3,
        _ => 5,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let whole = text.find('.').unwrap_or(text.len());
    let mut grouped = String::new();
    for (place, character) in text.char_indices() {
        if place > 0 && place < whole && (whole - place).is_multiple_of(3) && !text[..place].ends_with('-') {
            grouped.push(',');
        }
        grouped.push(character);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits_and_thousands_apart() {
        let texts =
            [(0.0, "0"), (12_345.6, "12,346"), (1_234_567.0, "1,234,567"), (41.04, "41"), (2.5, "2.5"), (0.04, "0.04")];
        for (value, text) in texts {
            assert_eq!(number(value), text);
        }
        assert_eq!((number(-1234.0), number(-123.0)), ("-1,234".into(), "-123".into()));
    }

    #[test]
    fn a_linear_axis_ends_at_a_round_tick_and_a_log_axis_shows_round_ones() {
        let axis = Axis { unit: "", scale: Scale::Linear, end: None };
        let ruler = Ruler::new(axis, [3.0, 47.0].into_iter(), 0.0, 100.0).unwrap();
        assert_eq!((ruler.to, &ruler.ticks[..]), (50.0, &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0][..]));
        assert_eq!((ruler.at(25.0), ruler.at(51.0)), (Some(50.0), None));
        let axis = Axis { scale: Scale::Log, ..axis };
        let ruler = Ruler::new(axis, [0.0, 1.0, 100.0].into_iter(), 0.0, 100.0).unwrap();
        assert_eq!(ruler.ticks, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!((ruler.at(10.0).unwrap() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn where_nothing_was_measured_nothing_is_drawn() {
        let axis = Axis { unit: "ms", scale: Scale::Log, end: None };
        let series = Series { name: "x".into(), points: vec![(0.0, 0.0)], look: Look::Line };
        let chart = Chart { title: "t".into(), x: axis, y: axis, series: vec![series], marks: vec![] };
        assert_eq!(chart.draw(Shape::Half), "");
    }
}
