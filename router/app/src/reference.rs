//! `headrace reference`: writes docs/reference from the same tables that the program runs by.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use clap::{Arg, Command};

use crate::flags::{self, origins, variables};

/// A file of the reference: its name and its text.
type Page = (String, String);

/// Writes all pages into a directory, which is made if need be.
pub fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    pages().iter().try_for_each(|(name, text)| fs::write(directory.join(name), text))
}

fn pages() -> Vec<Page> {
    let command = flags::described();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    let mut pages: Vec<Page> = commands.map(command_page).collect();
    pages.push(("variables.md".to_owned(), variables_page()));
    pages.push(("metrics.md".to_owned(), format!("{NOTE}# Metrics\n\n{}", headrace_telemetry::markdown())));
    pages.push(("openapi.json".to_owned(), headrace_http::openapi_json() + "\n"));
    pages
}

const NOTE: &str = "<!-- Written by `make reference` from the program itself: change it there. -->\n\n";

fn command_page(command: &Command) -> Page {
    let name = command.get_name();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{NOTE}# headrace {name}\n\n{about}.\n");
    let own = |arg: &&Arg| !matches!(arg.get_id().as_str(), "help" | "version");
    let arguments: Vec<&Arg> = command.get_arguments().filter(own).filter(|arg| is_described(arg)).collect();
    let mut groups: Vec<&str> = Vec::new();
    for group in arguments.iter().map(|arg| group_of(arg)) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for group in groups {
        let members: Vec<&Arg> = arguments.iter().copied().filter(|arg| group_of(arg) == group).collect();
        let _ =
            write!(text, "\n## {group}\n\n{}", if is_foreign(group) { idle_table(&members) } else { table(&members) });
    }
    (format!("{name}.md"), text)
}

fn group_of(arg: &Arg) -> &str {
    arg.get_help_heading().unwrap_or("Words")
}

fn is_foreign(group: &str) -> bool {
    group.starts_with("Known from")
}

/// What is hidden from the help because there is so much of it is described here; what only tests need is not.
fn is_described(arg: &Arg) -> bool {
    let opposite = arg.get_long().is_some_and(|long| long.starts_with("no-"));
    !arg.is_hide_set() || is_foreign(group_of(arg)) && !opposite
}

fn table(arguments: &[&Arg]) -> String {
    let mut text = "| flag | value | default | variable | |\n|---|---|---|---|---|\n".to_owned();
    for arg in arguments {
        let (names, value, default) = (names(arg), value(arg), default(arg));
        let _ = writeln!(text, "| {names} | {value} | {default} | {} | {} |", variables(arg), meaning(arg));
    }
    text
}

/// Of flags that change nothing, only that is of interest.
fn idle_table(arguments: &[&Arg]) -> String {
    let mut text = "| flag | variable | |\n|---|---|---|\n".to_owned();
    for arg in arguments {
        let _ = writeln!(text, "| {} | {} | {} |", names(arg), variables(arg), meaning(arg));
    }
    text
}

fn names(arg: &Arg) -> String {
    let Some(long) = arg.get_long() else {
        return format!("`{}`", arg.get_value_names().unwrap_or_default().join(" "));
    };
    let mut names = vec![format!("`--{long}`")];
    names.extend(arg.get_short().map(|short| format!("`-{short}`")));
    names.extend(arg.get_visible_aliases().unwrap_or_default().iter().map(|alias| format!("`--{alias}`")));
    names.join(" ")
}

/// A unit, or the words to choose from; empty for a switch.
fn value(arg: &Arg) -> String {
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let words = arg.get_possible_values();
    if words.is_empty() {
        let unit = arg.get_value_names().unwrap_or_default().join(" ");
        return escaped(&unit.to_lowercase());
    }
    words.iter().map(|word| format!("`{}`", word.get_name())).collect::<Vec<_>>().join(" ")
}

fn default(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    match origins::default_sentence(arg) {
        _ if arg.get_action().takes_values() && !values.is_empty() => format!("`{}`", values.join(",")),
        Some(sentence) => escaped(&sentence),
        None => String::new(),
    }
}

fn variables(arg: &Arg) -> String {
    variables::of(arg).iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
}

/// The help without what it says of the default, which has a column.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let help = help.split("Default: ").next().unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = escaped(help.trim_end_matches('.'));
    for word in arg.get_possible_values() {
        if let Some(help) = word.get_help() {
            let _ = write!(text, "; `{}`: {}", word.get_name(), escaped(&help.to_string()));
        }
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn variables_page() -> String {
    let mut text = format!(
        "{NOTE}# Variables\n\nEvery flag of a server has a variable, which the pages of the commands name; a flag on the command line \
         wins.\nAn empty variable counts as not set. `headrace config` says where each value comes from. Where a flag has \
         several,\nthe first that is set counts:\n\n| flag | variables |\n|---|---|\n"
    );
    for (flag, names) in variables::several() {
        let _ =
            writeln!(text, "| `--{flag}` | {} |", names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" "));
    }
    text += "\n## Without effect\n\nVariables of Text Generation Inference that are accepted with a warning.\n\n";
    text += "| variable | |\n|---|---|\n";
    for idle in variables::known_idle() {
        let _ = writeln!(text, "| `{}` | {} |", idle.variable, idle.why);
    }
    text += "\n## Read by libraries\n\nThe shard's process inherits the environment.\n\n| variable | by |\n|---|---|\n";
    for (name, reader) in variables::INHERITED {
        let _ = writeln!(text, "| `{}` | {reader} |", name.replace(", ", "` `"));
    }
    text
}
