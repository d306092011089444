//! Where the time of a start went.

use std::fmt;
use std::time::{Duration, Instant};

/// Parts of a start, one after another.
#[derive(Debug)]
pub struct Timeline {
    start: Instant,
    last: Instant,
    parts: Vec<(&'static str, Duration)>,
}

impl Timeline {
    pub fn start() -> Self {
        let now = Instant::now();
        Self { start: now, last: now, parts: Vec::new() }
    }

    /// The time since the last mark was spent on `what`.
    pub fn mark(&mut self, what: &'static str) {
        let now = Instant::now();
        self.parts.push((what, now - self.last));
        self.last = now;
    }

    /// From the start to the last mark.
    pub fn total(&self) -> Duration {
        self.last - self.start
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} s:", self.total().as_secs_f64())?;
        for (i, (what, time)) in self.parts.iter().enumerate() {
            write!(f, "{} {what} {:.2}", if i == 0 { "" } else { "," }, time.as_secs_f64())?;
        }
        Ok(())
    }
}
