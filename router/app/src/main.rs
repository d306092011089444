//! The `headrace` binary: flags → checked configuration → shards → service.
//!
//! `flags` holds what people type, `config` turns it into one checked value (`show` prints it), `serve`, `router`,
//! `simulate` and `bench` are the commands. The first two end in `service`, which runs until something ends it;
//! `shard_group` watches the shards' processes meanwhile.

mod bench;
mod chat_templates;
mod config;
mod connect;
mod defaults;
mod failure;
mod flags;
mod group;
mod listen;
mod logs;
mod machine;
mod metrics_port;
mod model;
mod prepare;
mod python;
mod ready;
mod reference;
mod router;
mod same_model;
mod serve;
mod service;
mod shard_group;
mod shard_log;
mod show;
mod signals;
mod simulate;
mod socket;
mod supervise;
mod timeline;
mod warm;

use std::process::ExitCode;

use config::Config;
use failure::Failure;
use flags::{Origins, Task};
use python::Python;
use signals::Signals;

fn main() -> ExitCode {
    let task = match flags::read(std::env::args_os()) {
        Ok(task) => task,
        Err(error) => error.exit(),
    };
    let (flags, show) = match task {
        Task::Run(flags) => (flags, false),
        Task::Show(flags) => (flags, true),
        Task::PrintSchema => {
            show::print(&headrace_http::openapi_json());
            return ExitCode::SUCCESS;
        }
        Task::WriteReference(directory) => {
            return match reference::write(&directory) {
                Ok(()) => ExitCode::SUCCESS,
                Err(reason) => Failure::Reference { directory, reason }.report(false, &Origins::default()),
            };
        }
    };
    let origins = flags.origins.clone();
    let config = match config::check(flags) {
        Ok(config) => config,
        Err(error) => return Failure::from(error).report(false, &origins),
    };
    let json = config.service().is_some_and(|service| service.logs.json);
    if show {
        show::print(&show::configuration(&config, origins));
        return ExitCode::SUCCESS;
    }
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json, &origins),
    }
}

fn run(config: Config) -> Result<(), Failure> {
    if let Some(service) = config.service() {
        logs::install(&service.logs)?;
        service.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        if service.log_environment {
            tracing::info!("{}", machine::describe(interpreter(&config).as_ref().map(Python::program)));
        }
    }
    match config {
        Config::Serve(config) => until_signal(async |signals| serve::run(*config, signals).await),
        Config::Router(config) => until_signal(async |signals| router::run(*config, signals).await),
        Config::Simulate(config) => simulate::run(&config),
        Config::Bench(config) => bench::run(*config),
        Config::Warm(config) => until_signal(async |signals| warm::run(*config, signals).await),
    }
}

/// The interpreter of the shard that this process starts.
fn interpreter(config: &Config) -> Option<Python> {
    let Config::Serve(config) = config else { return None };
    Some(Python::find(config.compute.python.as_deref(), &std::env::current_exe().ok()?))
}

/// Runs a server on this thread: shards are tied to the life of the thread that starts them, so it must be the one that
/// lives as long as the process.
fn until_signal(command: impl AsyncFnOnce(&mut Signals) -> Result<(), Failure>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::install().map_err(Failure::Runtime)?;
        command(&mut signals).await
    });
    // A blocking thread (a tokenizer that loads) must not hold up the end.
    runtime.shutdown_background();
    outcome
}
