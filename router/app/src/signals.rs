//! SIGTERM and SIGINT, as something to wait for.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// From its creation on, neither signal ends the process by itself.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn install() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal's name. One that came since the last call counts; may be dropped and called again.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
