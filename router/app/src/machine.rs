//! What `--env` logs: the facts of this build and this machine that a report of a bug needs.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A broken driver's tool may hang.
const PATIENCE: Duration = Duration::from_secs(5);

/// Text Generation Inference's lines, several to the text.
pub fn describe() -> String {
    format!(
        "Runtime environment:\nTarget: {}-{}\nHeadrace version: {}\nCommit sha: {}\nDocker label: {}\nnvidia-smi: {}",
        std::env::consts::ARCH,
        std::env::consts::OS,
        env!("CARGO_PKG_VERSION"),
        COMMIT.unwrap_or("N/A"),
        DOCKER_LABEL.unwrap_or("N/A"),
        output("nvidia-smi").map_or_else(|| "N/A".to_owned(), |text| text.trim_end().replace('\n', "\n   ")),
    )
}

/// What the build was told of its source, as `/info` shows it.
pub const COMMIT: Option<&str> = option_env!("GIT_SHA");
pub const DOCKER_LABEL: Option<&str> = option_env!("DOCKER_LABEL");

/// What a program says; `None` if there is none, or it does not end.
fn output(program: &'static str) -> Option<String> {
    let (said, heard) = mpsc::channel();
    thread::spawn(move || said.send(Command::new(program).stdin(Stdio::null()).output()));
    let output = heard.recv_timeout(PATIENCE).ok()?.ok()?;
    output.status.success().then(|| format!("\n{}", String::from_utf8_lossy(&output.stdout)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_says_nothing() {
        assert_eq!(output("no-such-program-as-this"), None);
    }

    #[test]
    fn the_lines_are_those_of_text_generation_inference() {
        let text = describe();
        let names: Vec<&str> = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
        let expected =
            ["Runtime environment", "Target", "Headrace version", "Commit sha", "Docker label", "nvidia-smi"];
        assert_eq!(names[..6], expected);
    }
}
