//! What people type, as clap sees it. Nothing here is checked against anything else: `config` does that.
//!
//! This module is the only place that reads the environment. Every flag has a variable, the upper snake case of its long
//! name as in Text Generation Inference (`--max-batch-size`, `MAX_BATCH_SIZE`), unless its help says otherwise; a flag on
//! the command line wins over its variable.
//!
//! On the way to clap: `program` tells by which name this was called, `words` brings spellings to one, `variables`
//! chooses among variables of the same meaning. On the way back: `complaint` puts an error into one line, `origins`
//! remembers where each value came from. `foreign` has the flags of other servers that change nothing here.

pub mod bench;
mod complaint;
pub mod foreign;
mod implied;
mod numbers;
pub mod opposite;
pub mod origins;
mod program;
pub mod router;
pub mod scheduling;
pub mod serve;
pub mod shared;
pub mod simulate;
pub mod surface;
pub mod telemetry;
mod tools;
pub mod variables;
mod warm;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Args as _, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use bench::BenchFlags;
pub use foreign::{ForeignFlags, Verdict};
pub use opposite::{Opposed, OppositeFlags};
pub use origins::{Origin, Origins, Setting};
use program::Program;
pub use router::{FakeFlags, RouterFlags};
pub use scheduling::SchedulingFlags;
pub use serve::{
    AttentionBackend, ComputeFlags, Device, Dtype, ModelFlags, Quantize, RopeScaling, ServeFlags, ShardFlags,
};
pub use shared::{BatchingFlags, HttpFlags, LimitFlags, MemoryFlags, ProcessFlags};
pub use simulate::SimulateFlags;
pub use surface::SurfaceFlags;
pub use telemetry::TelemetryFlags;
use variables::Idle;
pub use warm::WarmFlags;

/// What this process was asked to do.
#[derive(Debug)]
pub enum Task {
    Run(Flags),
    /// Print the configuration instead of running it.
    Show(Flags),
    /// Print the OpenAPI document.
    PrintSchema,
    /// Write the pages of docs/reference here.
    WriteReference(PathBuf),
}

/// A server for text generation: this router decides what runs next, Python shards compute it.
#[derive(Debug, Parser)]
#[command(name = "headrace", version, propagate_version = true, max_term_width = 120)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
    #[arg(skip)]
    pub origins: Origins,
    /// Variables that are set and change nothing.
    #[arg(skip)]
    pub idle_variables: Vec<Idle>,
    /// Which GPUs shards may use, if a variable says so.
    #[arg(skip)]
    pub visible_gpus: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the model's shards and serve it over HTTP.
    Serve(Box<ServeFlags>),
    /// Serve over HTTP with shards that run elsewhere, or with a fake one.
    Router(Box<RouterFlags>),
    /// Run the scheduler against a model of what steps cost: latencies and throughput of a workload, without a GPU.
    Simulate(Box<SimulateFlags>),
    /// Put load on any server that speaks TGI's or OpenAI's API: latencies, throughput and CPU time.
    Bench(Box<BenchFlags>),
    /// Compile a model's GPU kernels ahead of time, also on a machine without a GPU.
    Warm(Box<WarmFlags>),
}

/// Reads the command line and the environment. The error is clap's own: help, version, or what is wrong with a word.
pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Task, clap::Error> {
    let (program, words) = Program::called(words.into_iter().collect());
    let words = words::spell(words);
    let mut command = command(program);
    let matches = command.try_get_matches_from_mut(&words);
    let matches = matches.map_err(|error| complaint::explain(error, &command, &words))?;
    match matches.subcommand() {
        Some((tools::CONFIG, matches)) => match read(tools::command_line(matches))? {
            Task::Run(flags) => Ok(Task::Show(flags)),
            other => Ok(other),
        },
        Some((tools::PRINT_SCHEMA, _)) => Ok(Task::PrintSchema),
        Some((tools::REFERENCE, matches)) => Ok(Task::WriteReference(tools::directory(matches))),
        _ => flags(program, &command, &matches, &words).map(Task::Run),
    }
}

fn flags(
    program: Program,
    command: &clap::Command,
    matches: &ArgMatches,
    words: &[OsString],
) -> Result<Flags, clap::Error> {
    let asked = match program {
        Program::Headrace => Command::from_arg_matches(matches)?,
        Program::Launcher => Command::Serve(Box::new(ServeFlags::from_arg_matches(matches)?)),
        Program::Router => Command::Router(Box::new(RouterFlags::from_arg_matches(matches)?)),
    };
    let below = matches.subcommand().and_then(|(name, matches)| Some((command.find_subcommand(name)?, matches)));
    let (command, matches) = below.unwrap_or((command, matches));
    let origins = Origins::of(command, matches, words);
    let (idle_variables, visible_gpus) = (variables::idle(), variables::visible_gpus());
    Flags { command: asked, origins, idle_variables, visible_gpus }.with_implied(program)
}

/// The command with every variable's name in its help, and no variable's value: some are secrets.
fn command(program: Program) -> clap::Command {
    let single = |about: &'static str| {
        let command = clap::Command::new("headrace").bin_name(program.name()).version(env!("CARGO_PKG_VERSION"));
        command.about(about).max_term_width(120)
    };
    match program {
        Program::Headrace => {
            let commands = Flags::command().subcommands(tools::commands());
            commands.mut_subcommands(|command| command.display_name("headrace").mut_args(argument))
        }
        Program::Launcher => {
            ServeFlags::augment_args(single("Start the model's shard and serve it over HTTP")).mut_args(argument)
        }
        Program::Router => {
            let command = RouterFlags::augment_args(single("Serve over HTTP with a shard that runs elsewhere"));
            command.subcommand(tools::print_schema()).subcommand_negates_reqs(true).mut_args(argument)
        }
    }
}

/// The command as it is, whatever the environment says: for the reference.
pub fn described() -> clap::Command {
    let mut command = Flags::command().subcommands(tools::commands());
    command.build();
    command
}

fn argument(arg: clap::Arg) -> clap::Arg {
    let arg = variables::choose(arg.hide_env_values(true));
    // `--max-batch-size -1` is a number out of range, not an unknown flag.
    if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg }
}

/// The flags of a command line that runs something.
#[cfg(test)]
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Flags, clap::Error> {
    read(words).map(|task| match task {
        Task::Run(flags) | Task::Show(flags) => flags,
        Task::PrintSchema | Task::WriteReference(_) => panic!("no flags"),
    })
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
    fn clap_finds_no_contradiction_in_the_flags_of_any_program() {
        for program in [Program::Headrace, Program::Launcher, Program::Router] {
            command(program).debug_assert();
        }
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
        for mut command in command(Program::Headrace).get_subcommands().cloned() {
            command.build();
            let own = |arg: &&clap::Arg| !matches!(arg.get_id().as_str(), "help" | "version");
            for arg in command.get_arguments().filter(own) {
                assert!(arg.get_help().is_some(), "{} has no help", arg.get_id());
                let minor = arg.is_hide_set() || arg.is_hide_short_help_set();
                let named = minor || arg.get_env().is_some() || arg.get_id() == "env";
                let server = ["serve", "router"].contains(&command.get_name()) && !arg.is_positional();
                assert!(named || !server, "{}", arg.get_id());
            }
        }
    }
}
