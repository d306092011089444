//! Flags that came from the environment: whoever reads an error about one must learn which variable to look at.

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, Error};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// The flags whose values are the environment's: `--max-batch-size` and `MAX_BATCH_SIZE`.
#[derive(Clone, Debug, Default)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    pub fn of(command: &Command, matches: &ArgMatches) -> Self {
        let given = command.get_arguments().filter(|arg| {
            let known = matches.try_contains_id(arg.get_id().as_str()).is_ok();
            known && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::EnvVariable)
        });
        Self(given.filter_map(flag_and_variable).collect())
    }

    /// What to add to a sentence that names such flags; empty when it names none.
    pub fn note(&self, sentence: &str) -> String {
        let word = |flag: &str| sentence.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|w| w == flag);
        let named = self.0.iter().filter(|(flag, _)| word(flag));
        let named: Vec<_> = named.map(|(flag, variable)| format!("{flag} is set by the variable {variable}")).collect();
        if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
    }
}

/// A variable that is empty counts as not set: that is how scripts and compose files leave one out.
pub fn without_empty(arg: Arg) -> Arg {
    match arg.get_env().map(std::env::var_os) {
        Some(Some(value)) if value.is_empty() => arg.env(Resettable::Reset),
        _ => arg,
    }
}

/// clap's error about a value that `words` do not hold came from a variable: one line that names both.
pub fn explain(error: Error, command: &Command, words: &[std::ffi::OsString]) -> Error {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return error };
    let long = shown.split([' ', '=']).next().unwrap_or_default();
    let arguments = command.get_subcommands().flat_map(Command::get_arguments).chain(command.get_arguments());
    let mut known = arguments.filter_map(|arg| Some((flag_and_variable(arg)?, arg.get_short())));
    let Some(((flag, variable), short)) = known.find(|((flag, _), _)| flag == long) else { return error };
    let typed = words.iter().filter_map(|word| word.to_str()).any(|word| {
        let name = word.split('=').next().unwrap_or_default();
        name == flag || short.is_some_and(|short| word.starts_with('-') && word[1..].starts_with(short))
    });
    if typed {
        return error;
    }
    let kind = error.kind();
    let text = error.to_string();
    let sentence = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let choices = text.lines().find(|line| line.trim_start().starts_with("[possible values")).map(str::trim);
    let choices = choices.map_or_else(String::new, |choices| format!(" {choices}"));
    Error::raw(kind, format!("{sentence}{choices} ({flag} is set by the variable {variable})\n"))
}

fn flag_and_variable(arg: &Arg) -> Option<(String, String)> {
    Some((format!("--{}", arg.get_long()?), arg.get_env()?.to_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        Environment(vec![("--max-batch-size".into(), "MAX_BATCH_SIZE".into()), ("--port".into(), "PORT".into())])
    }

    #[test]
    fn a_sentence_about_a_flag_of_the_environment_names_the_variable() {
        let note = environment().note("--max-batch-size is 0; it must be at least 1");
        assert_eq!(note, " (--max-batch-size is set by the variable MAX_BATCH_SIZE)");
        assert!(environment().note("port 1 is in use (--port); choose another").ends_with("by the variable PORT)"));
    }

    #[test]
    fn other_sentences_stay_as_they_are() {
        assert_eq!(environment().note("--max-batch-size-of-another is 0"), "");
        assert_eq!(environment().note("the disk is full"), "");
    }
}
