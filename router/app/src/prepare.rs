//! Turns what the user named into a model directory, by asking the shard's package: `python -m headrace_server prepare`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::config::ModelSource;
use crate::group::GroupChild;
use crate::python::Python;

/// For cleaning up half-made files.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// Bytes of its answer; one JSON line is a few hundred.
const MAX_ANSWER: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("cannot start Python ({program}): {reason}; install Python 3.11 or newer, or name one with --python")]
    NoPython { program: String, reason: io::Error },
    #[error(
        "{program} has no package headrace_server; install it there, or name the interpreter that has it with --python \
         (HEADRACE_PYTHON)"
    )]
    NoPackage { program: String },
    /// The child has written its own line.
    #[error("the model could not be prepared")]
    Said,
    #[error("preparing the model was ended by signal {signal}")]
    Killed { signal: i32 },
    #[error(
        "preparing the model gave no answer that this version understands ({reason}); are headrace and \
         headrace_server of the same version?"
    )]
    Answer { reason: String },
}

/// A model directory with config.json, tokenizer.json and *.safetensors.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Prepared {
    pub model_dir: PathBuf,
    /// The name to show.
    pub model_id: String,
    /// Commit, for a model from the hub.
    pub revision: Option<String>,
}

/// The running child. Its progress bars and errors go straight to our standard error.
#[derive(Debug)]
pub struct Preparation {
    child: GroupChild,
}

impl Preparation {
    /// Starts it. To be called on the main thread, see `GroupChild::spawn`.
    pub fn start(python: &Python, source: &ModelSource) -> Result<Self, PrepareError> {
        let program = python.program();
        let mut command = Command::new(program);
        command.args(arguments(source)).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(token) = &source.hub_token {
            command.env("HF_TOKEN", token.expose());
        }
        let failed = |reason| PrepareError::NoPython { program: program.display().to_string(), reason };
        Ok(Self { child: GroupChild::spawn(&mut command, Signal::SIGKILL).map_err(failed)? })
    }

    /// Waits for its answer.
    pub async fn finish(&mut self) -> Result<Prepared, PrepareError> {
        let unreadable = |error: io::Error| PrepareError::Answer { reason: error.to_string() };
        let mut answer = String::new();
        if let Some(stdout) = self.child.child_mut().stdout.as_mut() {
            stdout.take(MAX_ANSWER).read_to_string(&mut answer).await.map_err(unreadable)?;
        }
        let status = self.child.wait().await.map_err(unreadable)?;
        match std::os::unix::process::ExitStatusExt::signal(&status) {
            Some(signal) => Err(PrepareError::Killed { signal }),
            None if !status.success() => Err(PrepareError::Said),
            None => parse(&answer),
        }
    }

    /// Ends it; what it half made is cleaned up by itself, or never used.
    pub async fn stop(&mut self) {
        self.child.stop(Signal::SIGTERM, STOP_GRACE).await;
    }
}

fn arguments(source: &ModelSource) -> Vec<OsString> {
    let mut args: Vec<OsString> = ["-m", "headrace_server", "prepare", "--model-id"].map(Into::into).into();
    args.push(source.model_id.clone().into());
    if let Some(revision) = &source.revision {
        args.extend(["--revision".into(), revision.into()]);
    }
    if let Some(dir) = &source.cache_dir {
        args.extend(["--cache-dir".into(), dir.into()]);
    }
    if let Some(dir) = &source.hub_cache {
        args.extend(["--hub-cache".into(), dir.into()]);
    }
    args
}

/// The last line is the answer; libraries may have printed others before it.
fn parse(output: &str) -> Result<Prepared, PrepareError> {
    let line = output.trim_end().lines().last().unwrap_or_default();
    serde_json::from_str(line).map_err(|error| PrepareError::Answer { reason: format!("{error}: {line:?}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_answer() {
        let output = "a library greets\n{\"model_dir\": \"/m\", \"model_id\": \"org/m\", \"revision\": null}\n";
        let prepared = Prepared { model_dir: "/m".into(), model_id: "org/m".into(), revision: None };
        assert_eq!(parse(output).expect("an answer"), prepared);
    }

    #[test]
    fn no_answer_is_one_line_that_asks_about_the_versions() {
        let error = parse("").expect_err("nothing").to_string();
        assert!(error.contains("same version") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn only_what_was_given_is_passed_on() {
        let mut source = ModelSource {
            model_id: "org/m".into(),
            revision: None,
            cache_dir: None,
            hub_cache: None,
            hub_token: Some("hf_secret".parse().expect("any text is a secret")),
        };
        assert_eq!(arguments(&source), ["-m", "headrace_server", "prepare", "--model-id", "org/m"]);
        source.revision = Some("main".into());
        source.cache_dir = Some("/c".into());
        source.hub_cache = Some("/h".into());
        assert_eq!(arguments(&source)[5..], ["--revision", "main", "--cache-dir", "/c", "--hub-cache", "/h"]);
    }
}
