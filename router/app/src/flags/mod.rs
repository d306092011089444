//! What people type, as clap sees it. Nothing here is checked against anything else: `config` does that.
//!
//! This module is the only place that reads the environment. Every flag has a variable, the upper snake case of its long
//! name as in Text Generation Inference (`--max-batch-size`, `MAX_BATCH_SIZE`), unless its help says otherwise; a flag on
//! the command line wins over its variable.

pub mod bench;
pub mod environment;
pub mod foreign;
pub mod router;
pub mod scheduling;
pub mod serve;
pub mod shared;
pub mod simulate;
pub mod telemetry;

use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use bench::BenchFlags;
pub use environment::Environment;
pub use foreign::{ForeignFlags, Verdict};
pub use router::{FakeFlags, RouterFlags};
pub use scheduling::SchedulingFlags;
pub use serve::{Device, Dtype, ServeFlags};
pub use shared::{BatchingFlags, HttpFlags, LimitFlags, ProcessFlags};
pub use simulate::SimulateFlags;
pub use telemetry::TelemetryFlags;

/// A server for text generation: this router decides what runs next, Python shards compute it.
#[derive(Debug, Parser)]
#[command(name = "headrace", version, propagate_version = true, max_term_width = 120)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
    #[arg(skip)]
    pub environment: Environment,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the model's shard and serve it over HTTP.
    Serve(Box<ServeFlags>),
    /// Serve over HTTP with shards that run elsewhere, or with a fake one.
    Router(Box<RouterFlags>),
    /// Run the scheduler against a model of what steps cost: latencies and throughput of a workload, without a GPU.
    Simulate(Box<SimulateFlags>),
    /// Put load on any server that speaks TGI's or OpenAI's API: latencies, throughput and CPU time.
    Bench(Box<BenchFlags>),
}

/// Reads the command line and the environment. The error is clap's own: help, version, or what is wrong with a word.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Flags, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    if is_alias(&words) {
        let mut command = alias();
        let matches = matches(&mut command, &words)?;
        let serve = Command::Serve(Box::new(ServeFlags::from_arg_matches(&matches)?));
        return Ok(Flags { command: serve, environment: Environment::default() }.with_environment(&command, &matches));
    }
    let mut command = command();
    let matches = matches(&mut command, &words)?;
    let flags = Flags::from_arg_matches(&matches)?;
    let Some((name, matches)) = matches.subcommand() else { return Ok(flags) };
    match command.find_subcommand(name) {
        Some(command) => Ok(flags.with_environment(command, matches)),
        None => Ok(flags),
    }
}

fn matches(command: &mut clap::Command, words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let matches = command.try_get_matches_from_mut(words);
    matches.map_err(|error| environment::explain(error, command, words))
}

/// The command with every variable's name in its help, and no variable's value: some are secrets.
fn command() -> clap::Command {
    Flags::command().mut_subcommands(|command| command.display_name("headrace").mut_args(argument))
}

/// Called as `text-generation-launcher`, the binary is `headrace serve`, in its help too.
fn alias() -> clap::Command {
    let command = clap::Command::new("headrace").bin_name(ALIAS).version(env!("CARGO_PKG_VERSION"));
    ServeFlags::augment_args(command.about("Start the model's shard and serve it over HTTP").max_term_width(120))
        .mut_args(argument)
}

fn argument(arg: clap::Arg) -> clap::Arg {
    let arg = environment::without_empty(arg.hide_env_values(true));
    // `--max-batch-size -1` is a number out of range, not an unknown flag.
    if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg }
}

const ALIAS: &str = "text-generation-launcher";

fn is_alias(words: &[OsString]) -> bool {
    let name = words.first().and_then(|word| Path::new(word).file_name());
    name.is_some_and(|name| name == ALIAS)
}

fn from_environment(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::EnvVariable)
}

impl Flags {
    fn with_environment(mut self, command: &clap::Command, matches: &ArgMatches) -> Self {
        self.environment = Environment::of(command, matches);
        if let Some(http) = self.http_mut() {
            http.hostname_from_environment = from_environment(matches, "hostname");
        }
        self
    }

    fn http_mut(&mut self) -> Option<&mut HttpFlags> {
        match &mut self.command {
            Command::Serve(flags) => Some(&mut flags.http),
            Command::Router(flags) => Some(&mut flags.http),
            Command::Simulate(_) | Command::Bench(_) => None,
        }
    }
}

/// A number above 0, for a flag's value parser.
fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|&value: &f64| value > 0.0).ok_or_else(|| "not a number above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn clap_finds_no_contradiction_in_the_flags() {
        command().debug_assert();
    }

    #[test]
    fn the_launchers_old_name_serves() {
        let flags =
            parse(words("/usr/bin/text-generation-launcher --model-id some/model -p 8080")).expect("TGI's words");
        let Command::Serve(serve) = flags.command else { panic!("not `serve`: {flags:?}") };
        assert_eq!((serve.model.model_id.as_str(), serve.http.port), ("some/model", 8080));
    }

    #[test]
    fn under_the_launchers_old_name_help_and_version_are_those_of_one_command() {
        let said = |line: &str| parse(words(line)).expect_err("shows and ends").to_string();
        let help = said("text-generation-launcher --help");
        assert!(help.contains("Usage: text-generation-launcher [OPTIONS]"), "{help}");
        let version = format!("headrace {}\n", env!("CARGO_PKG_VERSION"));
        for line in ["text-generation-launcher --version", "headrace --version", "headrace serve --version"] {
            assert_eq!(said(line), version, "{line}");
        }
        alias().debug_assert();
    }

    #[test]
    fn a_negative_number_is_out_of_range_and_no_unknown_flag() {
        let error = parse(words("headrace serve --max-batch-size -1")).expect_err("out of range").to_string();
        assert!(error.contains("-1 is not in 0..=4294967295"), "{error}");
    }

    #[test]
    fn the_own_name_needs_a_command() {
        assert!(parse(words("headrace --model-id some/model")).is_err());
    }

    #[test]
    fn every_flag_says_what_it_does_and_every_visible_one_of_a_server_has_a_variable() {
        for mut command in command().get_subcommands().cloned() {
            command.build();
            let own = |arg: &&clap::Arg| !matches!(arg.get_id().as_str(), "help" | "version");
            for arg in command.get_arguments().filter(own) {
                assert!(arg.get_help().is_some(), "{} has no help", arg.get_id());
                let named = arg.is_hide_set() || arg.get_env().is_some() || arg.get_id() == "env";
                assert!(named || matches!(command.get_name(), "simulate" | "bench"), "{}", arg.get_id());
            }
        }
    }
}
