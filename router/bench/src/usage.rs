//! CPU time: what measuring costs, and what is measured.

use std::fs;
use std::io;
use std::ops::Sub;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// CPU time of a process, all its threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    pub user: Duration,
    pub system: Duration,
}

impl Cpu {
    /// Of this process. Zero where the system does not say.
    pub fn own() -> Self {
        Self::used(UsageWho::RUSAGE_SELF)
    }

    /// Of all child processes that have ended and were waited for, from their start to their end. Zero where the system
    /// does not say.
    pub fn of_children() -> Self {
        Self::used(UsageWho::RUSAGE_CHILDREN)
    }

    fn used(who: UsageWho) -> Self {
        getrusage(who)
            .map(|usage| Self { user: duration(usage.user_time()), system: duration(usage.system_time()) })
            .unwrap_or_default()
    }

    /// Of another process, to a hundredth of a second; without its children. On Linux.
    ///
    /// # Errors
    /// There is no such process, or no `/proc`.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        parse(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not as expected")))
    }

    pub fn total(self) -> Duration {
        self.user + self.system
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { user: self.user.saturating_sub(earlier.user), system: self.system.saturating_sub(earlier.system) }
    }
}

/// Fields 14 and 15, in ticks of which Linux shows a hundred a second. The name before them may hold anything.
fn parse(stat: &str) -> Option<Cpu> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut ticks = after_name.split(' ').skip(11).map(|field| field.parse::<u64>().ok());
    let mut time = || Some(Duration::from_millis(10 * ticks.next()??));
    Some(Cpu { user: time()?, system: time()? })
}

fn duration(time: TimeVal) -> Duration {
    Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_hides_no_field() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 75 3 4 20 0 5 0 100 1 2";
        let (user, system) = (Duration::from_millis(2500), Duration::from_millis(750));
        assert_eq!(parse(stat), Some(Cpu { user, system }));
    }
}
