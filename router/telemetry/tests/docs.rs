//! The documentation says what the table says.

use std::path::Path;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
const MARK: &str = "cargo test -p headrace-telemetry -->\n\n";

#[test]
fn the_page_about_metrics_ends_with_the_table() {
    let page = std::fs::read_to_string(PAGE).expect("docs/metrics.md");
    let (head, shown) = page.split_once(MARK).unwrap_or((page.trim_end().trim_end_matches(MARK.trim_end()), ""));
    let table = headrace_telemetry::markdown();
    if std::env::var_os("HEADRACE_WRITE_DOCS").is_some() {
        std::fs::write(Path::new(PAGE), format!("{head}{MARK}{table}")).expect("our own file");
        return;
    }
    assert!(shown == table, "docs/metrics.md is stale: HEADRACE_WRITE_DOCS=1 cargo test -p headrace-telemetry");
}
