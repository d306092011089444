//! One family of time series, and the handles that are made from it.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::buckets::Buckets;

/// What is said of a metric: in `/metrics`, in the documentation, in the rules and dashboards.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub labels: &'static [Label],
    /// One sentence without its full stop.
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram(Buckets),
    /// Quantiles over the last minutes, where TGI has them.
    Summary,
}

/// What a sample counts or measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Requests,
    Tokens,
    Rows,
    Blocks,
    Steps,
    Spans,
    Viewers,
    Seconds,
    /// 0 to 1.
    Ratio,
    /// Always 1: the labels say it.
    Info,
}

/// A label and the values it has: a family's number of series is known before it runs.
#[derive(Debug)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// These and no others.
    Fixed(&'static [&'static str]),
    /// One value for the life of a process.
    OneOfAProcess,
}

/// Counts what happened since the start.
#[derive(Debug)]
pub struct CounterFamily(pub(crate) Metric);

/// Shows how something stands.
#[derive(Debug)]
pub struct GaugeFamily(pub(crate) Metric);

/// Shows how values are distributed: a histogram, or a summary.
#[derive(Debug)]
pub struct HistogramFamily(pub(crate) Metric);

impl CounterFamily {
    pub(crate) const fn new(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self(Metric { name, kind: Kind::Counter, unit, labels: &[], help })
    }

    pub(crate) const fn by(mut self, labels: &'static [Label]) -> Self {
        self.0.labels = labels;
        self
    }

    /// The family's only series.
    pub fn handle(&self) -> Counter {
        self.0.expect_labels(&[]);
        counter!(self.0.name)
    }

    /// The series with this value of the family's only label.
    pub fn of(&self, value: &'static str) -> Counter {
        counter!(self.0.name, self.0.only_label(value) => value)
    }
}

impl GaugeFamily {
    pub(crate) const fn new(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self(Metric { name, kind: Kind::Gauge, unit, labels: &[], help })
    }

    pub(crate) const fn by(mut self, labels: &'static [Label]) -> Self {
        self.0.labels = labels;
        self
    }

    /// The family's only series.
    pub fn handle(&self) -> Gauge {
        self.0.expect_labels(&[]);
        gauge!(self.0.name)
    }

    /// The series with this value of the family's only label.
    pub fn of(&self, value: &'static str) -> Gauge {
        gauge!(self.0.name, self.0.only_label(value) => value)
    }

    /// The series with these values, in the order of the family's labels.
    pub fn of_all(&self, values: &[&str]) -> Gauge {
        self.0.expect_labels(values);
        let labels = self.0.labels.iter().zip(values);
        let labels: Vec<_> =
            labels.map(|(label, value)| metrics::Label::new(label.name, (*value).to_owned())).collect();
        gauge!(self.0.name, labels)
    }
}

impl HistogramFamily {
    pub(crate) const fn new(name: &'static str, unit: Unit, buckets: Buckets, help: &'static str) -> Self {
        Self(Metric { name, kind: Kind::Histogram(buckets), unit, labels: &[], help })
    }

    pub(crate) const fn summary(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self(Metric { name, kind: Kind::Summary, unit, labels: &[], help })
    }

    pub(crate) const fn by(mut self, labels: &'static [Label]) -> Self {
        self.0.labels = labels;
        self
    }

    /// The family's only series.
    pub fn handle(&self) -> Histogram {
        self.0.expect_labels(&[]);
        histogram!(self.0.name)
    }

    /// The series with this value of the family's only label.
    pub fn of(&self, value: &'static str) -> Histogram {
        histogram!(self.0.name, self.0.only_label(value) => value)
    }
}

impl Metric {
    /// The name of the only label, whose values include this one. With debug assertions, a test that makes any other
    /// handle fails.
    fn only_label(&self, value: &str) -> &'static str {
        self.expect_labels(&[value]);
        self.labels.first().map_or("label", |label| label.name)
    }

    fn expect_labels(&self, values: &[&str]) {
        let name = self.name;
        debug_assert!(
            self.has_series(values),
            "{name} has no series {values:?}: add it to router/telemetry/src/table.rs"
        );
    }

    /// Whether the table lists a series with these values, in the order of the labels.
    fn has_series(&self, values: &[&str]) -> bool {
        let known = |(label, value): (&Label, &&str)| label.values.include(value);
        self.labels.len() == values.len() && self.labels.iter().zip(values).all(known)
    }
}

impl Values {
    fn include(self, value: &str) -> bool {
        match self {
            Self::Fixed(values) => values.contains(&value),
            Self::OneOfAProcess => true,
        }
    }
}

impl Kind {
    /// As Prometheus' text format names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
            Self::Summary => "summary",
        }
    }
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Rows => "rows",
            Self::Blocks => "blocks",
            Self::Steps => "steps",
            Self::Spans => "spans",
            Self::Viewers => "viewers",
            Self::Seconds => "seconds",
            Self::Ratio => "0 to 1",
            Self::Info => "always 1",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static BY_CAUSE: CounterFamily = CounterFamily::new("test_total", Unit::Requests, "Tests")
        .by(&[Label { name: "cause", values: Values::Fixed(&["known"]) }]);

    #[test]
    fn a_label_value_that_the_table_lacks_is_no_series() {
        assert!(BY_CAUSE.0.has_series(&["known"]));
        assert!(!BY_CAUSE.0.has_series(&["unknown"]));
    }

    #[test]
    fn a_family_with_a_label_has_no_series_without_it() {
        assert!(!BY_CAUSE.0.has_series(&[]));
        assert!(!BY_CAUSE.0.has_series(&["known", "known"]));
    }
}
