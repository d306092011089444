//! A server that lives as long as the run which measures it.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::process::Command;

use crate::config::bench::PORT;
use crate::group::GroupChild;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot find a free port: {0}")]
    Port(io::Error),
    #[error("cannot write the server's log {}: {reason}", path.display())]
    Log { path: PathBuf, reason: io::Error },
    #[error("cannot start {program}: {reason}")]
    Spawn { program: String, reason: io::Error },
    #[error("the server ended ({how}); the end of its log:\n{log}")]
    Ended { how: String, log: String },
}

pub struct Started {
    child: GroupChild,
    port: u16,
    log: PathBuf,
    /// Where the log lies unless somebody wanted it.
    _folder: Option<TempDir>,
}

impl Started {
    /// Starts the command with a free port in it. To be called on the main thread.
    pub fn start(words: &[String], log: Option<&Path>) -> Result<Self, StartError> {
        let port = free_port().map_err(StartError::Port)?;
        let in_log =
            |reason| StartError::Log { path: log.unwrap_or(Path::new("in a temporary directory")).into(), reason };
        let folder = log.is_none().then(tempfile::tempdir).transpose().map_err(in_log)?;
        let log = match (&folder, log) {
            (Some(folder), _) => folder.path().join("log"),
            (None, log) => log.unwrap_or(Path::new("log")).to_owned(),
        };
        let out = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = out.map_err(|reason| StartError::Log { path: log.clone(), reason })?;
        let mut words = words.iter().map(|word| word.replace(PORT, &port.to_string()));
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(words).stdin(Stdio::null()).stdout(out).stderr(err);
        let child = GroupChild::spawn(&mut command, Signal::SIGTERM);
        let child = child.map_err(|reason| StartError::Spawn { program, reason })?;
        Ok(Self { child, port, log, _folder: folder })
    }

    pub fn url(&self) -> String {
        format!("http://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    pub fn pid(&self) -> Option<u32> {
        u32::try_from(self.child.pid()).ok()
    }

    /// Waits for an end that nobody asked for.
    pub async fn ended(&mut self) -> StartError {
        let how = match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let log = std::fs::read(&self.log).unwrap_or_default();
        let tail = log.len().saturating_sub(SHOWN_LOG);
        StartError::Ended { how, log: String::from_utf8_lossy(&log[tail..]).trim_end().to_owned() }
    }

    pub async fn stop(mut self) {
        self.child.stop(Signal::SIGTERM, GRACE).await;
    }
}

/// Free now: nobody promises that it still is when the server takes it.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Bytes of a log's end.
const SHOWN_LOG: usize = 2000;
/// Shards let go of a device's memory in this time.
const GRACE: Duration = Duration::from_secs(20);
