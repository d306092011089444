//! Flags of other servers: an old command line must keep working, or say why it cannot.
//!
//! A flag whose wish comes true another way, or not yet, is accepted with one warning. One that decides who may ask or
//! read is refused instead: pretending would be worse. One row per flag in `tgi` and `vllm`; a feature that arrives
//! takes its row away.

mod tgi;
mod vllm;

use clap::builder::BoolishValueParser;
use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use Shape::{Many, Switch, Toggle, Value};
use Verdict::{NoEffect, NotAvailable};

/// Values that ask for nothing: a variable that is set to one changes nothing anywhere.
pub const FALSE_WORDS: &[&str] = &["", "0", "false", "False", "off", "no"];

/// What becomes of a flag that is known but not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted; the sentence says why it changes nothing.
    NoEffect(&'static str),
    /// Refused; the sentence says what to do instead.
    NotAvailable(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Switch,
    /// `--name` and `--no-name`; only the first asks for something.
    Toggle,
    Value,
    /// Several words after one flag.
    Many,
}

#[derive(Clone, Copy)]
struct Foreign {
    name: &'static str,
    variable: Option<&'static str>,
    short: Option<char>,
    shape: Shape,
    /// Values that ask for what is done anyway.
    harmless: &'static [&'static str],
    verdict: Verdict,
}

/// The flags of the tables that were given.
#[derive(Debug, Default)]
pub struct ForeignFlags {
    /// Long name (without dashes) and verdict, in the tables' order.
    pub given: Vec<(&'static str, Verdict)>,
}

impl Args for ForeignFlags {
    fn augment_args(command: Command) -> Command {
        let command = command.next_help_heading(tgi::HEADING).args(tgi::FLAGS.iter().map(argument));
        let command = command.next_help_heading(vllm::HEADING).args(vllm::FLAGS.iter().map(argument));
        command.args(all().filter(|flag| flag.shape == Toggle).map(opposite))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ForeignFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = all().filter(|flag| flag.is_given(matches));
        Ok(Self { given: given.map(|flag| (flag.name, flag.verdict)).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn all() -> impl Iterator<Item = &'static Foreign> {
    tgi::FLAGS.iter().chain(vllm::FLAGS)
}

fn argument(flag: &Foreign) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).help(match flag.verdict {
        NoEffect(why) => format!("Accepted without effect: {why}"),
        NotAvailable(instead) => format!("Not available: {instead}"),
    });
    // vLLM's are many, and no variable leads to one.
    let arg = if flag.variable.is_some() { arg.hide_short_help(true) } else { arg.hide(true) };
    let arg = match flag.shape {
        Switch | Toggle => arg.action(ArgAction::SetTrue).value_parser(BoolishValueParser::new()),
        Value => arg.value_name("VALUE").allow_hyphen_values(true),
        Many => arg.value_name("VALUE").num_args(1..),
    };
    let arg = match flag.variable {
        Some(variable) => arg.env(variable),
        None => arg,
    };
    match flag.short {
        Some(short) => arg.short(short),
        None => arg,
    }
}

fn opposite(flag: &Foreign) -> Arg {
    let name = format!("no-{}", flag.name);
    Arg::new(name.clone()).long(name).hide(true).action(ArgAction::SetTrue).help("As if it was not given")
}

impl Foreign {
    const fn unless(self, harmless: &'static [&'static str]) -> Self {
        Self { harmless, ..self }
    }

    const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    /// A switch that is off, and a value such as `--speculate 0`, ask for nothing.
    fn is_given(&self, matches: &ArgMatches) -> bool {
        match self.shape {
            Switch | Toggle => matches.get_flag(self.name),
            Value | Many => {
                let mut values = matches.get_many::<String>(self.name).into_iter().flatten();
                values.any(|value| !self.harmless.contains(&value.as_str()))
            }
        }
    }
}
