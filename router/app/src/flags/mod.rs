//! What people type, as clap sees it. Nothing here is checked against anything else: `config` does that.
//!
//! This module is the only place that reads the environment. Every flag has a variable, the upper snake case of its long
//! name as in Text Generation Inference (`--max-batch-size`, `MAX_BATCH_SIZE`), unless its help says otherwise; a flag on
//! the command line wins over its variable.

pub mod foreign;
pub mod router;
pub mod scheduling;
pub mod serve;
pub mod shared;
pub mod simulate;

use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use foreign::{ForeignFlags, Verdict};
pub use router::{FakeFlags, RouterFlags};
pub use scheduling::SchedulingFlags;
pub use serve::{Device, Dtype, ServeFlags};
pub use shared::{BatchingFlags, HttpFlags, LimitFlags, ProcessFlags};
pub use simulate::SimulateFlags;

/// A server for text generation: this router decides what runs next, Python shards compute it.
#[derive(Debug, Parser)]
#[command(name = "headrace", version, propagate_version = true, max_term_width = 120)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the model's shard and serve it over HTTP.
    Serve(Box<ServeFlags>),
    /// Serve over HTTP with shards that run elsewhere, or with a fake one.
    Router(Box<RouterFlags>),
    /// Run the scheduler against a model of what steps cost: latencies and throughput of a workload, without a GPU.
    Simulate(Box<SimulateFlags>),
}

/// Reads the command line and the environment. The error is clap's own: help, version, or what is wrong with a word.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Flags, clap::Error> {
    let matches = command().try_get_matches_from(with_alias(words.into_iter().collect()))?;
    let mut flags = Flags::from_arg_matches(&matches)?;
    if let (Some((_, matches)), Some(http)) = (matches.subcommand(), flags.http_mut()) {
        http.hostname_from_environment = from_environment(matches, "hostname");
    }
    Ok(flags)
}

/// The command with every variable's name in its help, and no variable's value: some are secrets.
fn command() -> clap::Command {
    Flags::command().mut_subcommands(|command| command.mut_args(|arg| arg.hide_env_values(true)))
}

/// Called as `text-generation-launcher`, the binary is `headrace serve`.
fn with_alias(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|word| Path::new(word).file_name());
    if name.is_some_and(|name| name == "text-generation-launcher") {
        words.insert(1, "serve".into());
    }
    words
}

fn from_environment(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::EnvVariable)
}

impl Flags {
    fn http_mut(&mut self) -> Option<&mut HttpFlags> {
        match &mut self.command {
            Command::Serve(flags) => Some(&mut flags.http),
            Command::Router(flags) => Some(&mut flags.http),
            Command::Simulate(_) => None,
        }
    }
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
                assert!(named || command.get_name() == "simulate", "{}", arg.get_id());
            }
        }
    }
}
