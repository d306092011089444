//! Commands that serve nothing: they show what is there.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};

use super::Command as Commands;
use super::program::Program;

pub const CONFIG: &str = "config";

pub const PRINT_SCHEMA: &str = "print-schema";
pub const REFERENCE: &str = "reference";

const WORDS: &str = "words";
const DIRECTORY: &str = "directory";

/// Added to those of [`Commands`].
pub fn commands() -> [Command; 3] {
    [config(), print_schema(), reference()]
}

/// A command of `text-generation-router` too.
pub fn print_schema() -> Command {
    Command::new(PRINT_SCHEMA).about("Print the OpenAPI document of the routes; start nothing")
}

fn config() -> Command {
    let words = Arg::new(WORDS)
        .value_name("COMMAND LINE")
        .help("A command and its flags, such as `router --fake-shard`; flags alone are those of `serve`")
        .value_parser(clap::value_parser!(OsString))
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true);
    let about = "Print what another command would run with, and where each value comes from; start nothing";
    Command::new(CONFIG).about(about).arg(words)
}

fn reference() -> Command {
    let directory = Arg::new(DIRECTORY)
        .value_name("DIRECTORY")
        .help("Where to write")
        .value_parser(clap::value_parser!(PathBuf))
        .required(true);
    Command::new(REFERENCE).about("Write the pages of docs/reference").hide(true).arg(directory)
}

/// Where `headrace reference` writes.
pub fn directory(matches: &ArgMatches) -> PathBuf {
    matches.get_one(DIRECTORY).cloned().unwrap_or_default()
}

/// The command line that `headrace config` is asked about.
pub fn command_line(matches: &ArgMatches) -> Vec<OsString> {
    let words: Vec<OsString> = matches.get_many(WORDS).into_iter().flatten().cloned().collect();
    if let (Program::Launcher | Program::Router, words) = Program::called(words.clone()) {
        return words;
    }
    let named =
        words.first().and_then(|word| word.to_str()).is_some_and(<Commands as clap::Subcommand>::has_subcommand);
    let implied = (!named).then(|| "serve".into());
    std::iter::once("headrace".into()).chain(implied).chain(words).collect()
}
