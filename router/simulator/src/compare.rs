//! Several runs of one workload side by side.

use std::fmt::Write;

use crate::report::{Latencies, Report, number};

/// A table with a column for each report: totals, mean and p99 of each latency, and, where there are several, the p99
/// time to first token of each tenant and each band.
pub fn comparison(reports: &[(String, Report)]) -> String {
    let mut table = Table { text: String::new(), reports };
    table.row("", |name, _| name.to_owned());
    table.totals();
    table.latencies();
    let keys = |of: fn(&Report) -> usize| reports.first().map_or(0, |(_, report)| of(report)) > 1;
    if keys(|report| report.tenants.len()) {
        table.groups(|report| report.tenants.iter().map(|(name, latencies)| (name.clone(), latencies)).collect());
    }
    if keys(|report| report.priorities.len()) {
        table.groups(|report| {
            report.priorities.iter().map(|(band, latencies)| (format!("band {band}"), latencies)).collect()
        });
    }
    table.text
}

struct Table<'a> {
    text: String,
    reports: &'a [(String, Report)],
}

impl<'a> Table<'a> {
    fn row(&mut self, title: &str, cell: impl Fn(&str, &'a Report) -> String) {
        let _ = write!(self.text, "{title:<18}");
        for (name, report) in self.reports {
            let _ = write!(self.text, " {:>10}", cell(name, report));
        }
        self.text.push('\n');
    }

    fn totals(&mut self) {
        let Some((_, first)) = self.reports.first() else { return };
        for (line, (title, _)) in first.totals().into_iter().enumerate() {
            self.row(title, |_, report| report.totals()[line].1.clone());
        }
    }

    fn latencies(&mut self) {
        let Some((_, first)) = self.reports.first() else { return };
        for (line, (title, _)) in first.latencies.named().into_iter().enumerate() {
            self.row(&format!("{title} mean, ms"), |_, report| cell(report.latencies.named()[line].1.mean));
            self.row(&format!("{title} p99, ms"), |_, report| cell(report.latencies.named()[line].1.p99));
        }
    }

    /// All reports are of one workload, so each has the same groups.
    fn groups(&mut self, of: impl Fn(&'a Report) -> Vec<(String, &'a Latencies)>) {
        let Some((_, first)) = self.reports.first() else { return };
        for (line, (name, _)) in of(first).into_iter().enumerate() {
            self.row(&format!("{name} ttft p99"), |_, report| cell(of(report)[line].1.ttft_ms.p99));
        }
    }
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}
