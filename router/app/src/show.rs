//! `headrace config`: what a command would run with, and where each value comes from.

use std::io::Write;

use crate::config::{Config, ServiceConfig};
use crate::flags::{Origin, Origins, Setting};
use crate::python::Python;

/// Prints lines to standard output. A reader that closes it early is no failure.
pub fn print(text: &str) {
    let _ = std::io::stdout().write_all(format!("{}\n", text.trim_end()).as_bytes());
}

/// A table of all settings, and the warnings.
pub fn configuration(config: &Config, mut origins: Origins) -> String {
    derive(config, &mut origins);
    let warnings = config.service().map_or(&[][..], |service| &service.warnings);
    table(&origins, warnings)
}

/// Values that the checked configuration has and the flags have not.
fn derive(config: &Config, origins: &mut Origins) {
    if let Some(service) = config.service() {
        derive_batching(service, origins);
    }
    if let Config::Serve(config) = config {
        let mut fill = |flag: &str, value: String, how: &str| fill(origins, flag, value, how);
        fill("num-threads", config.shard.num_threads.to_string(), "all cores");
        if let Ok(binary) = std::env::current_exe() {
            let python = Python::find(config.compute.python.as_deref(), &binary);
            fill("python", python.program().display().to_string(), "found");
        }
    }
}

fn derive_batching(service: &ServiceConfig, origins: &mut Origins) {
    let batching = &service.batching;
    let budget = !matches!(origins.origin("max-num-batched-tokens"), Some(Origin::Unset) | None);
    if budget {
        let how = "256, or half of --max-num-batched-tokens where that is less";
        fill(origins, "max-batch-size", batching.max_batch_size.to_string(), how);
    }
    if let Some(tokens) = batching.max_batch_prefill_tokens {
        let how = "--max-num-batched-tokens less a token of each of --max-batch-size rows";
        fill(origins, "max-batch-prefill-tokens", tokens.to_string(), how);
    }
    if batching.waiting_served_ratio_permille > 0 {
        let ratio = f64::from(batching.waiting_served_ratio_permille) / 1000.0;
        fill(origins, "waiting-served-ratio", ratio.to_string(), "by --max-waiting-tokens or whole prompts");
        let steps = batching.max_waiting_tokens.to_string();
        fill(origins, "max-waiting-tokens", steps, "by --waiting-served-ratio or whole prompts");
    }
    let scheduling = &service.scheduling;
    opposite(origins, "no-prefix-cache", scheduling.no_prefix_cache, "prefix-caching");
    opposite(origins, "no-chunked-prefill", scheduling.no_chunked_prefill, "chunked-prefill");
}

/// A switch that is not as its own name says, because of one of another server.
fn opposite(origins: &mut Origins, flag: &str, on: bool, other: &str) {
    let names = [format!("no-enable-{other}"), format!("enable-{other}")];
    let settled = origins.iter().any(|setting| setting.flag == flag && setting.value == Some(on.to_string()));
    let decisive = names.iter().find(|name| origins.iter().any(|setting| setting.flag == **name && setting.is_given()));
    if let (false, Some(name)) = (settled, decisive) {
        let how = origins.origin(name).map_or_else(String::new, ToString::to_string);
        origins.set(flag, on, Origin::Derived(how));
    }
}

/// Notes a value that nobody gave.
fn fill(origins: &mut Origins, flag: &str, value: String, how: &str) {
    if origins.origin(flag) == Some(&Origin::Unset) {
        origins.set(flag, value, Origin::Derived(how.to_owned()));
    }
}

fn table(origins: &Origins, warnings: &[String]) -> String {
    let mut text = String::new();
    let mut group = "";
    for setting in origins.iter().filter(|setting| !setting.minor || setting.is_given()) {
        if setting.group != group {
            group = &setting.group;
            text += &format!("{}{group}\n", if text.is_empty() { "" } else { "\n" });
        }
        text += &format!("  {:<28} {:<28} {}\n", setting.flag, value(setting), origin(setting));
    }
    for warning in warnings {
        text += &format!("\nwarning: {warning}");
    }
    text
}

fn value(setting: &Setting) -> String {
    match (&setting.value, &setting.origin) {
        (Some(value), _) if value.is_empty() => "\"\"".to_owned(),
        (Some(value), _) => value.clone(),
        (None, Origin::Unset) => "-".to_owned(),
        (None, _) => "(not shown)".to_owned(),
    }
}

fn origin(setting: &Setting) -> String {
    match (&setting.origin, &setting.default) {
        (Origin::Unset, Some(default)) => format!("default: {default}"),
        (origin, _) => origin.to_string(),
    }
}
