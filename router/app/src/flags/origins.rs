//! Where each value of a command came from: whoever reads an error about one, or asks for all of them with
//! `headrace config`, must learn what to change.

use std::ffi::{OsStr, OsString};
use std::fmt;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::words;

/// The settings of a command, in the order of its help.
#[derive(Clone, Debug, Default)]
pub struct Origins(Vec<Setting>);

/// One flag, its value and its origin.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Long name, without dashes.
    pub flag: String,
    /// The group of the help that it is in.
    pub group: String,
    /// As it was written; `None` when nothing was, and for a secret.
    pub value: Option<String>,
    pub origin: Origin,
    /// What its help says of a default that is no fixed value.
    pub default: Option<String>,
    /// A flag of another server, or another name: of interest only when it is given.
    pub minor: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line, under this name, which may be another one of the flag's, or that of a position.
    Typed(String),
    Variable(String),
    Default,
    /// Nobody said, and the default is no fixed value.
    Unset,
    /// Other flags or this machine settle it; the text says how.
    Derived(String),
}

/// Flags whose values are never shown.
const SECRET: &[&str] = &["api-key", "hf-token", "ngrok-authtoken"];

impl Origins {
    /// `words`: the command line.
    pub fn of(command: &Command, matches: &ArgMatches, words: &[OsString]) -> Self {
        let known = |arg: &&Arg| matches.try_contains_id(arg.get_id().as_str()).is_ok();
        let own = |arg: &&Arg| !matches!(arg.get_id().as_str(), "help" | "version");
        let flags = command.get_arguments().filter(|arg| arg.get_long().is_some()).filter(known).filter(own);
        Self(flags.filter_map(|arg| Setting::of(arg, matches, words)).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }

    /// Whether the command line has the flag.
    pub fn is_typed(&self, flag: &str) -> bool {
        matches!(self.origin(flag), Some(Origin::Typed(_)))
    }

    pub fn origin(&self, flag: &str) -> Option<&Origin> {
        self.0.iter().find(|setting| setting.flag == flag).map(|setting| &setting.origin)
    }

    /// Notes what the command line and the variables alone do not tell.
    pub fn set(&mut self, flag: &str, value: impl ToString, origin: Origin) {
        if let Some(setting) = self.0.iter_mut().find(|setting| setting.flag == flag) {
            setting.value = Some(value.to_string());
            setting.origin = origin;
        }
    }

    /// What to add to a sentence that names flags of which something else was written; empty when it names none.
    pub fn note(&self, sentence: &str) -> String {
        let word = |flag: &str| sentence.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|w| w == flag);
        let notes: Vec<String> =
            self.0.iter().filter(|setting| word(&format!("--{}", setting.flag))).filter_map(Setting::note).collect();
        if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) }
    }
}

impl Setting {
    fn of(arg: &Arg, matches: &ArgMatches, words: &[OsString]) -> Option<Self> {
        let flag = arg.get_long()?.to_owned();
        let id = arg.get_id().as_str();
        let origin = match matches.value_source(id) {
            Some(ValueSource::CommandLine) => Origin::Typed(typed(arg, words)),
            Some(ValueSource::EnvVariable) => Origin::Variable(arg.get_env()?.to_string_lossy().into_owned()),
            Some(_) => Origin::Default,
            None => Origin::Unset,
        };
        let written = matches.get_raw(id).map(|raw| raw.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(","));
        let value = if SECRET.contains(&flag.as_str()) { None } else { written };
        let group = arg.get_help_heading().unwrap_or("Options").to_owned();
        let minor = arg.is_hide_set() || arg.is_hide_short_help_set();
        Some(Self { flag, group, value, origin, default: default_sentence(arg), minor })
    }

    /// Whether somebody said something of it.
    pub fn is_given(&self) -> bool {
        matches!(self.origin, Origin::Typed(_) | Origin::Variable(_))
    }

    fn note(&self) -> Option<String> {
        let flag = &self.flag;
        match &self.origin {
            Origin::Variable(variable) => Some(format!("--{flag} is set by the variable {variable}")),
            Origin::Typed(name) if name.starts_with("--") && *name != format!("--{flag}") => {
                Some(format!("--{flag} is set by {name}"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typed(name) => f.write_str(name),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Default => f.write_str("default"),
            Self::Unset => f.write_str("not set"),
            Self::Derived(how) => write!(f, "derived: {how}"),
        }
    }
}

/// "all cores" of a help text that ends in "Default: all cores."
pub fn default_sentence(arg: &Arg) -> Option<String> {
    let help = arg.get_help()?.to_string();
    let (_, default) = help.split_once("Default: ")?;
    Some(default.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned())
}

/// The name by which the command line gives the argument.
fn typed(arg: &Arg, line: &[OsString]) -> String {
    let long = arg.get_long().unwrap_or_default();
    let others = arg.get_all_aliases().unwrap_or_default();
    let found = others.into_iter().find(|name| line.iter().any(|word| words::name(word, name)));
    format!("--{}", found.unwrap_or(long))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins() -> Origins {
        let setting = |flag: &str, origin| Setting {
            flag: flag.into(),
            group: String::new(),
            value: None,
            origin,
            default: None,
            minor: false,
        };
        Origins(vec![
            setting("max-batch-size", Origin::Variable("MAX_BATCH_SIZE".into())),
            setting("port", Origin::Variable("PORT".into())),
            setting("max-total-tokens", Origin::Typed("--max-model-len".into())),
            setting("max-input-tokens", Origin::Typed("--max-input-tokens".into())),
        ])
    }

    #[test]
    fn a_sentence_about_a_flag_of_the_environment_names_the_variable() {
        let note = origins().note("--max-batch-size is 0; it must be at least 1");
        assert_eq!(note, " (--max-batch-size is set by the variable MAX_BATCH_SIZE)");
        assert!(origins().note("port 1 is in use (--port); choose another").ends_with("by the variable PORT)"));
    }

    #[test]
    fn a_sentence_about_a_flag_that_was_given_by_another_name_says_which() {
        let note = origins().note("--max-input-tokens 8 must be less than --max-total-tokens 8");
        assert_eq!(note, " (--max-total-tokens is set by --max-model-len)");
    }

    #[test]
    fn other_sentences_stay_as_they_are() {
        assert_eq!(origins().note("--max-batch-size-of-another is 0"), "");
        assert_eq!(origins().note("the disk is full"), "");
    }
}
