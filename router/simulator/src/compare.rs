//! Several runs of one workload side by side.

use std::fmt::Write;

use crate::report::{Report, number};

/// A table with a column for each report: totals, then mean and p99 of each latency.
pub fn comparison(reports: &[(String, Report)]) -> String {
    let mut table = String::new();
    row(&mut table, "", reports.iter().map(|(name, _)| name.clone()));
    let totals: Vec<_> = reports.iter().map(|(_, report)| report.totals()).collect();
    for line in 0..totals.first().map_or(0, |first| first.len()) {
        row(&mut table, totals[0][line].0, totals.iter().map(|totals| totals[line].1.clone()));
    }
    let latencies: Vec<_> = reports.iter().map(|(_, report)| report.latencies.named()).collect();
    for line in 0..latencies.first().map_or(0, |first| first.len()) {
        let name = latencies[0][line].0;
        let of = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        row(&mut table, &format!("{name} mean, ms"), latencies.iter().map(|of_run| of(of_run[line].1.mean)));
        row(&mut table, &format!("{name} p99, ms"), latencies.iter().map(|of_run| of(of_run[line].1.p99)));
    }
    table
}

fn row(table: &mut String, name: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(table, "{name:<18}");
    for cell in cells {
        let _ = write!(table, " {cell:>10}");
    }
    table.push('\n');
}
