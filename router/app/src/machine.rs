//! What `--env` logs: the facts of this build and this machine that a report of a bug needs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A broken driver's tool may hang, and a disk may be slow.
const PATIENCE: Duration = Duration::from_secs(10);

/// Prints a line each: the version of Python, of torch and of the shard's package. Nothing is imported that takes long.
const VERSIONS: &str = "
import importlib.metadata, platform
print(platform.python_version())
for name in ('torch', 'headrace-server'):
    try:
        print(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        print('N/A')
";

/// Text Generation Inference's lines, several to the text. `python`: the interpreter that runs the shard, if it is ours
/// to start.
pub fn describe(python: Option<&Path>) -> String {
    let versions = python.and_then(|python| output(python, &["-c", VERSIONS], PATIENCE)).unwrap_or_default();
    let mut versions = versions.lines();
    let mut version = || versions.next().unwrap_or(UNKNOWN);
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let gpus = output(Path::new("nvidia-smi"), &[], PATIENCE);
    let gpus = gpus.map_or_else(|| UNKNOWN.to_owned(), |text| format!("\n{text}").replace('\n', "\n   "));
    let lines = [
        ("Runtime environment", ""),
        ("Target", target.as_str()),
        ("Headrace version", env!("CARGO_PKG_VERSION")),
        ("Commit sha", COMMIT.unwrap_or(UNKNOWN)),
        ("Docker label", DOCKER_LABEL.unwrap_or(UNKNOWN)),
        ("Python", version()),
        ("torch", version()),
        ("headrace-server", version()),
        ("nvidia-smi", gpus.as_str()),
    ];
    lines.map(|(name, value)| format!("{name}: {value}").trim_end().to_owned()).join("\n")
}

const UNKNOWN: &str = "N/A";

/// What the build was told of its source, as `/info` shows it.
pub const COMMIT: Option<&str> = told(option_env!("GIT_SHA"));
pub const DOCKER_LABEL: Option<&str> = told(option_env!("DOCKER_LABEL"));

/// A variable that is empty says nothing: so it is where there is no git.
const fn told(variable: Option<&'static str>) -> Option<&'static str> {
    match variable {
        Some(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// What a program says; `None` if there is none, or it fails, or it does not end in time, which ends it.
pub fn output(program: &Path, arguments: &[&str], patience: Duration) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().ok()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let (said, heard) = mpsc::channel();
    thread::spawn(move || said.send(child.wait_with_output()));
    let Ok(output) = heard.recv_timeout(patience) else {
        // The thread above waits for it as long as it may take.
        let _ = kill(pid, Signal::SIGKILL);
        return None;
    };
    let output = output.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_says_nothing() {
        assert_eq!(output(Path::new("no-such-program-as-this"), &[], PATIENCE), None);
    }

    #[test]
    fn a_program_that_does_not_end_is_not_waited_for() {
        assert_eq!(output(Path::new("sleep"), &["60"], Duration::from_millis(10)), None);
    }

    #[test]
    fn an_empty_variable_of_the_build_says_nothing() {
        assert_eq!((told(Some("")), told(Some("c0ffee")), told(None)), (None, Some("c0ffee"), None));
    }

    #[test]
    fn the_lines_are_those_of_text_generation_inference() {
        let text = describe(None);
        let names: Vec<&str> = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
        let expected = ["Runtime environment", "Target", "Headrace version", "Commit sha", "Docker label"];
        assert_eq!(names[..5], expected);
        assert_eq!(names[5..9], ["Python", "torch", "headrace-server", "nvidia-smi"]);
    }
}
