//! The table as documentation.

use std::fmt::Write;

use crate::metric::{Kind, Label, Metric, Values};
use crate::table::TABLE;

/// Two Markdown tables: TGI's names, then our own.
pub fn markdown() -> String {
    let (tgi, own): (Vec<&Metric>, Vec<&Metric>) = TABLE.iter().partition(|metric| metric.name.starts_with("tgi_"));
    let mut text = String::new();
    section(&mut text, "Text Generation Inference's names", &tgi);
    text.push('\n');
    section(&mut text, "Headrace's own", &own);
    text
}

fn section(text: &mut String, title: &str, metrics: &[&Metric]) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "## {title}\n\n| metric | type | unit | labels | what |\n|---|---|---|---|---|");
    for metric in metrics {
        let labels: Vec<String> = metric.labels.iter().map(label).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            metric.name,
            metric.kind.name(),
            metric.unit.name(),
            labels.join("; "),
            sentence(metric),
        );
    }
}

fn label(label: &Label) -> String {
    match label.values {
        Values::Fixed(values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{}`: {}", label.name, values.join(", "))
        }
        Values::OneOfAProcess => format!("`{}`", label.name),
    }
}

fn sentence(metric: &Metric) -> String {
    match metric.kind {
        Kind::Histogram(buckets) => format!("{}. Buckets: {}.", metric.help, buckets.sentence()),
        Kind::Counter | Kind::Gauge | Kind::Summary => format!("{}.", metric.help),
    }
}
