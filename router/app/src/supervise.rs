//! The shard's process: how it is started, what it says, how it ends.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::{ComputeConfig, ShardConfig};
use crate::flags::AttentionBackend;
use crate::group::GroupChild;
use crate::shard_log::{LAST_WORDS, LastLines, follow};

/// From SIGTERM to SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// After the process's end, for the rest of its output. A grandchild may hold the pipe open, so it is bounded.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// One rank's process. Dropping it kills its whole process group.
#[derive(Debug)]
pub struct ShardProcess {
    rank: u32,
    process: GroupChild,
    readers: JoinSet<()>,
    last_lines: LastLines,
}

/// How a shard ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    pub rank: u32,
    pub pid: i32,
    pub cause: Cause,
    /// Its last lines on standard error, newest last.
    pub last_lines: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Exit(i32),
    Signal(i32),
    /// The system would not say.
    Unknown,
}

impl ShardProcess {
    /// Starts a rank and logs what it writes. To be called on the main thread, see `GroupChild::spawn`.
    pub fn spawn(rank: u32, program: &Path, args: Vec<OsString>) -> std::io::Result<Self> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Lines must reach the log when they are written, not when a buffer is full.
        command.env("PYTHONUNBUFFERED", "1");
        // A shard that hears of it takes its socket along; see `parent.py`.
        let mut process = GroupChild::spawn(&mut command, Signal::SIGTERM)?;
        let last_lines = LastLines::default();
        let mut readers = JoinSet::new();
        if let Some(stdout) = process.child_mut().stdout.take() {
            readers.spawn(follow(stdout, rank, LastLines::default()));
        }
        if let Some(stderr) = process.child_mut().stderr.take() {
            readers.spawn(follow(stderr, rank, last_lines.clone()));
        }
        Ok(Self { rank, process, readers, last_lines })
    }

    /// Waits until the process has ended and its output is read. May be dropped and called again.
    pub async fn death(&mut self) -> Death {
        let status = self.process.wait().await;
        let _ = timeout(LAST_OUTPUT, async { while self.readers.join_next().await.is_some() {} }).await;
        Death {
            rank: self.rank,
            pid: self.process.pid(),
            cause: status.map_or(Cause::Unknown, Cause::from),
            last_lines: self.last_lines.to_vec(),
        }
    }

    /// Ends the process and its group: SIGTERM, and SIGKILL when that was not enough.
    pub async fn stop(&mut self) {
        self.process.stop(Signal::SIGTERM, STOP_GRACE).await;
    }

    /// Ends the process and its group without a word.
    pub async fn kill(&mut self) {
        self.process.stop(Signal::SIGKILL, STOP_GRACE).await;
    }
}

/// What is a rank's own.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub rank: u32,
    pub socket: &'a Path,
    /// Where the ranks meet; `None` for one that is alone.
    pub port: Option<u16>,
}

/// The arguments of a rank: `python -m headrace_server serve …`.
pub fn shard_arguments(
    config: &ShardConfig,
    compute: &ComputeConfig,
    model_dir: &Path,
    place: Place<'_>,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = ["-m", "headrace_server", "serve"].map(Into::into).into();
    let mut flag = |name: &str, value: OsString| args.extend([name.into(), value]);
    flag("--model-dir", model_dir.into());
    flag("--uds-path", place.socket.into());
    flag("--rank", place.rank.to_string().into());
    flag("--world-size", config.ranks.to_string().into());
    if let Some(port) = place.port {
        flag("--master-addr", config.master_addr.clone().into());
        flag("--master-port", port.to_string().into());
    }
    flag("--device", config.device.name().into());
    flag("--num-threads", (config.num_threads / config.ranks).max(1).to_string().into());
    flag("--parent-pid", std::process::id().to_string().into());
    flag("--uds-owner", if config.uds_prefix.is_none() { "launcher" } else { "user" }.into());
    if config.memory_fraction < 1.0 {
        flag("--cuda-memory-fraction", config.memory_fraction.to_string().into());
    }
    if let Some(rows) = &config.cuda_graphs {
        let rows: Vec<String> = rows.iter().map(u32::to_string).collect();
        flag("--cuda-graphs", rows.join(",").into());
    }
    args.extend(compute_arguments(compute));
    // JSON carries each line's level; it becomes text again in our own log.
    args.push("--json-output".into());
    args
}

/// Those that say how a model is computed, whoever does it.
pub fn compute_arguments(config: &ComputeConfig) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut flag = |name: &str, value: OsString| args.extend([name.into(), value]);
    if let Some(dtype) = config.dtype.name() {
        flag("--dtype", dtype.into());
    }
    if let Some(method) = config.quantize {
        flag("--quantize", method.into());
    }
    if let Some(dtype) = config.kv_cache_dtype {
        flag("--kv-cache-dtype", dtype.into());
    }
    if let Some(rope) = config.rope {
        flag("--rope-scaling", rope.scaling.name().into());
        flag("--rope-factor", rope.factor.to_string().into());
    }
    if config.attention_backend != AttentionBackend::Auto {
        flag("--attention-backend", config.attention_backend.name().into());
    }
    if let Some(block_size) = config.block_size {
        flag("--block-size", block_size.to_string().into());
    }
    if let Some(directory) = &config.kernel_cache {
        flag("--kernel-cache", directory.into());
    }
    if config.batch_invariant {
        args.push("--batch-invariant".into());
    }
    args
}

impl From<ExitStatus> for Cause {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exit(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit code {code}"),
            Self::Signal(9) => write!(f, "killed by signal 9 (by somebody, or by the system when memory ran out)"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
            Self::Unknown => write!(f, "for an unknown reason"),
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, pid, cause, last_lines } = self;
        match (cause, last_lines.last()) {
            // What it says of itself says more than a process id and an exit code.
            (Cause::Exit(_), Some(line)) if line.starts_with(LAST_WORDS) => {
                write!(f, "rank {rank}: {}", line.trim_start_matches(LAST_WORDS))
            }
            // A shard ends well only when it is told to, and it was not us who told it.
            (Cause::Exit(0), _) => write!(f, "rank {rank} (pid {pid}) was told to end by somebody (SIGTERM or SIGINT)"),
            // It had no say in that.
            (Cause::Signal(9), _) | (_, None) => write!(f, "rank {rank} (pid {pid}) died: {cause}"),
            (_, Some(line)) => write!(f, "rank {rank} (pid {pid}) died: {cause}; its last words: {line}"),
        }
    }
}

#[cfg(test)]
mod tests;
