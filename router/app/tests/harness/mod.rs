//! The real binary as a child process, a tiny model directory, and just enough HTTP to talk to it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// For what takes milliseconds; long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `headrace`, killed when dropped.
pub struct Headrace {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What it wrote to standard error.
    stderr: PathBuf,
    _folder: TempDir,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stderr: String,
}

impl Headrace {
    pub fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// With variables of its own.
    pub fn start_with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_as(Path::new(env!("CARGO_BIN_EXE_headrace")), args, environment)
    }

    /// By another name.
    pub fn start_as(program: &Path, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let stderr = folder.path().join("stderr");
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(fs::File::create(&stderr).expect("a file"));
        // Variables of the machine that runs the tests must not matter.
        command.env_clear();
        command.envs(["PATH", "HOME", "TMPDIR"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        // Several servers run at the same time.
        command.env("PROMETHEUS_PORT", "0");
        command.envs(environment.iter().copied());
        let mut child = command.spawn().expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdout, stderr, _folder: folder }
    }

    /// All that is still to come on standard output.
    pub fn output(&mut self) -> String {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("text");
        text
    }

    /// The next line on standard output; empty at its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Waits for the ready line and gives the address in it.
    pub fn address(&mut self) -> String {
        let line = self.line();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
        address.unwrap_or_else(|| panic!("no ready line but {line:?}; log:\n{}", self.log())).to_owned()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.stderr).expect("text")
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let mut status = None;
        wait_until("its end", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        Ended { code: status.and_then(|status| status.code()), stderr: self.log() }
    }
}

impl Drop for Headrace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The one line with an error.
    pub fn error(&self) -> &str {
        self.only("one line with an error", |line| line.to_lowercase().contains("error"))
    }

    /// The one line that says why it ended.
    pub fn error_line(&self) -> &str {
        self.only("one closing line", |line| line.starts_with("error: "))
    }

    fn only(&self, what: &str, is_it: impl Fn(&str) -> bool) -> &str {
        let found: Vec<&str> = self.stderr.lines().filter(|line| is_it(line)).collect();
        assert_eq!(found.len(), 1, "{what} in\n{}", self.stderr);
        found[0]
    }
}

/// Polls until the condition holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the process is gone, or dead and only waits for its parent to ask.
pub fn wait_until_gone(pid: Pid) {
    wait_until("the process to be gone", || {
        let state = fs::read_to_string(format!("/proc/{pid}/stat"));
        kill(pid, None) == Err(Errno::ESRCH) || state.is_ok_and(|stat| stat.contains(") Z "))
    });
}

/// A model directory with a vocabulary of eight words; the fake shard needs nothing more.
pub fn tiny_model() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let words = ["</s>", "once", "upon", "a", "time", "there", "was", "end"];
    let vocabulary: Vec<String> = (0..).zip(words).map(|(id, word)| format!("{word:?}: {id}")).collect();
    let tokenizer = format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{{"id": 0, "content": "</s>",
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}}],
            "normalizer": null, "pre_tokenizer": {{"type": "WhitespaceSplit"}}, "post_processor": null, "decoder": null,
            "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "end"}}}}"#,
        vocabulary.join(", ")
    );
    fs::write(dir.path().join("tokenizer.json"), tokenizer).expect("a file");
    let config = r#"{"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 8, "eos_token_id": 0}"#;
    fs::write(dir.path().join("config.json"), config).expect("a file");
    dir
}

/// A shell script in the place of Python: `$3` is `prepare` or `serve`.
pub fn pretend_python(dir: &Path, script: &str) -> String {
    let path = dir.join("python");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our file");
    path.to_str().expect("text").to_owned()
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// `GET path`: status and body.
pub fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a good duration");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it reads");
    answer(BufReader::new(stream))
}

/// `POST path` with a JSON body: status and body.
pub fn post(address: &str, path: &str, body: &str) -> (u16, String) {
    answer(send(address, path, body))
}

/// The same, with further headers.
pub fn post_with(address: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    answer(send_with(address, path, headers, body))
}

/// Sends a request and leaves the answer to be read.
pub fn send(address: &str, path: &str, body: &str) -> BufReader<TcpStream> {
    send_with(address, path, &[], body)
}

fn send_with(address: &str, path: &str, headers: &[(&str, &str)], body: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a good duration");
    let headers: String = headers.iter().map(|(name, value)| format!("\r\n{name}: {value}")).collect();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json");
    write!(stream, "{head}{headers}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("it reads");
    BufReader::new(stream)
}

/// Status and body of an answer.
pub fn answer(stream: BufReader<TcpStream>) -> (u16, String) {
    let text = rest(stream);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned())
}

/// What is still to come.
pub fn rest(mut stream: BufReader<TcpStream>) -> String {
    let mut bytes = Vec::new();
    // A connection that is cut off ends the answer too.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a stream of events up to its first one.
pub fn first_event(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    while !line.starts_with("data:") {
        line.clear();
        assert_ne!(stream.read_line(&mut line).expect("text"), 0, "the stream ended without an event");
    }
    line
}
