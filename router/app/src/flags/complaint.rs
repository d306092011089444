//! What is wrong with a word, in one line: clap's own errors have several, and do not know of variables.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Command};

use super::words;

/// The error as one line; help and version stay as they are. `line`: the command line.
pub fn explain(error: Error, command: &Command, line: &[OsString]) -> Error {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    let kind = error.kind();
    if matches!(kind, DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion) {
        return error;
    }
    let sentence = match kind {
        ErrorKind::UnknownArgument => unknown(&error, command, line),
        ErrorKind::ArgumentConflict => conflict(&error, command, line),
        ErrorKind::MissingRequiredArgument => missing(&error, command),
        _ => format!("{}{}", first_line(&error), variable(&error, command, line)),
    };
    Error::raw(kind, format!("{sentence}\n"))
}

fn unknown(error: &Error, command: &Command, line: &[OsString]) -> String {
    let word = text(error, ContextKind::InvalidArg);
    let similar = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(similar)) => format!("; did you mean {similar}?"),
        _ => String::new(),
    };
    let what = if word.starts_with('-') { "flag" } else { "word" };
    let named = line.iter().find_map(|word| command.find_subcommand(word));
    let program = named.unwrap_or(command).get_bin_name().unwrap_or("headrace");
    format!("unknown {what} {word}{similar} (all flags: {program} --help)")
}

fn conflict(error: &Error, command: &Command, line: &[OsString]) -> String {
    let shown = [ContextKind::InvalidArg, ContextKind::PriorArg].map(|kind| text(error, kind));
    let [one, other] = shown.each_ref().map(|shown| shown.split([' ', '=']).next().unwrap_or_default());
    if one != other && !other.is_empty() {
        return format!("{one} and {other} contradict each other; keep one");
    }
    let names = argument(command, one).map_or_else(Vec::new, |arg| typed_names(arg, line));
    match &names[..] {
        [first, second, ..] => format!("--{first} and --{second} are names of the same flag; keep one"),
        _ => format!("{one} is given twice; keep one"),
    }
}

fn missing(error: &Error, command: &Command) -> String {
    let shown = text(error, ContextKind::InvalidArg);
    let flag = shown.split([' ', '=']).next().unwrap_or_default();
    let variable = argument(command, flag).and_then(|arg| arg.get_env()?.to_str());
    let variable = variable.map_or_else(String::new, |variable| format!(" (or the variable {variable})"));
    format!("{flag}{variable} is missing")
}

/// clap's first line, with the values that are possible.
fn first_line(error: &Error) -> String {
    let text = error.to_string();
    let sentence = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let choices = text.lines().find(|line| line.trim_start().starts_with("[possible values")).map(str::trim);
    choices.map_or(sentence.clone(), |choices| format!("{sentence} {choices}"))
}

/// Which variable a value came from that `line` does not hold.
fn variable(error: &Error, command: &Command, line: &[OsString]) -> String {
    let shown = text(error, ContextKind::InvalidArg);
    let flag = shown.split([' ', '=']).next().unwrap_or_default();
    match argument(command, flag).and_then(|arg| Some((arg, arg.get_env()?.to_str()?))) {
        Some((arg, variable)) if !is_typed(arg, line) => format!(" ({flag} is set by the variable {variable})"),
        _ => String::new(),
    }
}

/// The argument of `--name`, of whichever command: names mean the same in all of them.
fn argument<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    let long = flag.strip_prefix("--")?;
    let mut arguments = command.get_subcommands().flat_map(Command::get_arguments).chain(command.get_arguments());
    arguments.find(|arg| arg.get_long() == Some(long))
}

fn is_typed(arg: &Arg, line: &[OsString]) -> bool {
    let short = |short| line.iter().any(|word| words::short_name(word, short));
    !typed_names(arg, line).is_empty() || arg.get_short().is_some_and(short)
}

/// Those of its long names that the line has.
fn typed_names<'a>(arg: &'a Arg, line: &[OsString]) -> Vec<&'a str> {
    let mut names: Vec<&str> = arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default()).collect();
    names.retain(|name| line.iter().any(|word| words::name(word, name)));
    names
}

fn text(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn complaint(line: &str) -> String {
        let words = line.split_whitespace().map(Into::into);
        parse(std::iter::once("headrace".into()).chain(words)).expect_err(line).to_string()
    }

    #[test]
    fn each_complaint_is_one_line_that_says_what_to_change() {
        let cases = [
            ("serve --prot 1", "unknown flag --prot; did you mean --port? (all flags: headrace serve --help)"),
            ("serve model --port 1 other", "unknown word other (all flags: headrace serve --help)"),
            ("serve --port 1 --port 2", "--port is given twice; keep one"),
            (
                "serve --max-num-seqs 1 --max-batch-size 2",
                "--max-batch-size and --max-num-seqs are names of the same flag; keep one",
            ),
            ("simulate --preset seed --workload f", "--preset and --workload contradict each other; keep one"),
            ("router --fake-shard", "--model-id (or the variable MODEL_ID) is missing"),
            ("serve this --model-id that", "this and --model-id that both name a model; keep one"),
        ];
        for (line, expected) in cases {
            assert_eq!(complaint(line), format!("error: {expected}\n"), "{line}");
        }
    }

    #[test]
    fn a_value_that_is_none_of_a_few_comes_with_them() {
        let said = complaint("serve --dtype int3");
        assert!(said.contains("'int3'") && said.contains("bfloat16") && said.lines().count() == 1, "{said}");
    }
}
