//! A line on a terminal that says how far a run is.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headrace_bench::{Counts, Load, Progress};
use tokio::task::JoinHandle;

/// Is drawn until it is dropped, on standard error, if that is a terminal.
pub struct Bar(Option<JoinHandle<()>>);

impl Bar {
    pub fn start(progress: &Arc<Progress>, load: &Load, label: &str) -> Self {
        if !stderr().is_terminal() {
            return Self(None);
        }
        let (progress, load, label) = (progress.clone(), load.clone(), label.to_owned());
        Self(Some(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(PAUSE);
            // The warm-up is no part of the run.
            let mut began = Instant::now();
            loop {
                ticks.tick().await;
                let counts = progress.counts();
                if counts.started == 0 {
                    began = Instant::now();
                }
                let line = line(&counts, &load, began.elapsed());
                draw(&format!("\r{label}{line}\x1b[K"));
            }
        })))
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
            draw("\r\x1b[K");
        }
    }
}

/// A terminal that takes no more is no reason to stop measuring.
fn draw(text: &str) {
    let mut out = stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn line(counts: &Counts, load: &Load, elapsed: Duration) -> String {
    if counts.started == 0 {
        return "warming up".to_owned();
    }
    let of_requests = (load.requests != u64::MAX).then(|| counts.ended() as f64 / load.requests.max(1) as f64);
    let of_time = load.duration.map(|duration| elapsed.as_secs_f64() / duration.as_secs_f64());
    let share = of_requests.into_iter().chain(of_time).fold(0.0, f64::max).min(1.0);
    let full = (share * WIDTH as f64) as usize;
    let mut line = format!("[{}{}] {:3.0} %", "#".repeat(full), "·".repeat(WIDTH - full), share * 100.0);
    let _ = write!(line, "  {} done, {} running", counts.whole, counts.running());
    if counts.failed > 0 {
        let _ = write!(line, ", {} failed", counts.failed);
    }
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 {
        let _ = write!(line, ", {:.0} tokens/s", counts.events as f64 / seconds);
    }
    line
}

const WIDTH: usize = 24;
const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use headrace_bench::Arrivals;

    use super::*;

    const COUNTS: Counts = Counts { started: 60, whole: 40, failed: 10, events: 3000 };

    fn load(requests: u64, duration: Option<u64>) -> Load {
        let duration = duration.map(Duration::from_secs);
        Load { arrivals: Arrivals::Streams(10), requests, duration, warmup: 0, timeout: Duration::from_secs(1) }
    }

    #[test]
    fn a_bar_is_full_by_requests_or_by_time_whichever_is_nearer_its_end() {
        let six = Duration::from_secs(6);
        let half = line(&COUNTS, &load(100, None), six);
        assert_eq!(half, "[############············]  50 %  40 done, 10 running, 10 failed, 500 tokens/s");
        assert!(line(&COUNTS, &load(u64::MAX, Some(8)), six).contains(" 75 %"));
        assert!(line(&COUNTS, &load(100, Some(8)), six).contains(" 75 %"));
        assert!(line(&COUNTS, &load(100, Some(5)), six).contains("100 %"));
        assert_eq!(line(&Counts::default(), &load(100, None), six), "warming up");
    }
}
