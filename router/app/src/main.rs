//! The `headrace` binary: flags → checked configuration → shards → service.
//!
//! `flags` holds what people type, `config` turns it into one checked value, `serve` and `router` are the two commands.
//! Both end in `service`, which runs until something ends it; `supervise` watches the shard's process meanwhile.

mod config;
mod defaults;
mod failure;
mod flags;
mod group;
mod listen;
mod logs;
mod model;
mod prepare;
mod python;
mod ready;
mod router;
mod serve;
mod service;
mod shard_log;
mod signals;
mod socket;
mod supervise;
mod timeline;

use std::process::ExitCode;

use config::Config;
use failure::Failure;
use signals::Signals;

fn main() -> ExitCode {
    let flags = match flags::parse(std::env::args_os()) {
        Ok(flags) => flags,
        Err(error) => error.exit(),
    };
    let config = match config::check(flags) {
        Ok(config) => config,
        Err(error) => return Failure::from(error).report(false),
    };
    let json = config.logs().json;
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

/// Runs the command on this thread: shards are tied to the life of the thread that starts them, so it must be the one
/// that lives as long as the process.
fn run(config: Config) -> Result<(), Failure> {
    logs::install(config.logs())?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::install().map_err(Failure::Runtime)?;
        match config {
            Config::Serve(config) => serve::run(config, &mut signals).await,
            Config::Router(config) => router::run(config, &mut signals).await,
        }
    });
    // A blocking thread (a tokenizer that loads) must not hold up the end.
    runtime.shutdown_background();
    outcome
}
