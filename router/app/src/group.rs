//! Child processes that lead a process group of their own and never outlive this process.
//!
//! A group of their own keeps Ctrl-C from them: it reaches only the launcher, which ends them in order. Three things
//! make sure that none is left behind: `GroupChild`'s drop kills the whole group; on Linux the kernel sends the child a
//! signal when the thread that started it ends, even by SIGKILL; and a shard watches its parent's process id by itself.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A running child and its process group.
#[derive(Debug)]
pub struct GroupChild {
    child: Child,
    group: Pid,
    ended: bool,
}

impl GroupChild {
    /// Starts the command. To be called on the main thread: on Linux the child gets `orphaned` when the thread that
    /// starts it ends.
    pub fn spawn(command: &mut Command, orphaned: Signal) -> io::Result<Self> {
        command.process_group(0);
        die_with_parent(command, orphaned);
        let child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let group = Pid::from_raw(id.ok_or_else(|| io::Error::other("the child has no process id"))?);
        Ok(Self { child, group, ended: false })
    }

    pub fn pid(&self) -> i32 {
        self.group.as_raw()
    }

    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the child's end, then kills what it left in its group. May be dropped and called again.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        if !self.ended {
            self.kill_group();
            self.ended = true;
        }
        Ok(status)
    }

    /// Asks the group to end by `signal`, and kills it when the child has not ended within `grace`.
    pub async fn stop(&mut self, signal: Signal, grace: Duration) {
        self.signal(signal);
        if timeout(grace, self.wait()).await.is_err() {
            self.kill_group();
            // Not even SIGKILL ends a process that the kernel holds (a hung driver); do not wait for it for ever.
            let _ = timeout(Duration::from_secs(1), self.wait()).await;
        }
    }

    fn kill_group(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        if !self.ended {
            // ESRCH: the group is gone already, which is what we want.
            let _ = killpg(self.group, signal);
        }
    }
}

impl Drop for GroupChild {
    fn drop(&mut self) {
        self.kill_group();
    }
}

#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command, orphaned: Signal) {
    let parent = std::process::id();
    let request = move || {
        nix::sys::prctl::set_pdeathsig(orphaned)?;
        // The parent may have died before the request was made; then nobody would ever kill us.
        if u32::try_from(nix::unistd::getppid().as_raw()) != Ok(parent) {
            return Err(io::Error::other("the launcher is gone"));
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls, both async-signal-safe; it allocates
    // only on the path that ends the child.
    unsafe { command.pre_exec(request) };
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: &mut Command, _: Signal) {}
