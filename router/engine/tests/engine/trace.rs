//! A recorded run replays: whatever the engine told its scheduler is in the trace, in order.

use std::path::PathBuf;
use std::time::Duration;

use headrace_engine::TraceFiles;
use headrace_scheduler::trace::replay;
use headrace_scheduler::{Blocks, Tokens};
use tokio::time::sleep;

use crate::world::{Setup, read, request, token};

/// A directory of its own, gone with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("headrace-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_stops_departures_and_preemptions_replays_byte_for_byte() {
    let directory = Directory::new("trace");
    let base = directory.0.join("run");
    let world = Setup {
        blocks: Blocks(40),
        max_batch_prefill_tokens: Tokens(16),
        trace: Some(TraceFiles::create(&base).expect("created")),
        ..Setup::default()
    }
    .start()
    .await;
    let mut whole = Vec::new();
    for n in 0..20 {
        let mut asked = request(&format!("a prompt with the number {n}"), 30 + n);
        if n % 3 == 0 {
            asked.stop = vec!["b".into()];
        }
        let mut generation = world.engine.generate(asked).await.expect("taken");
        if n % 4 == 1 {
            token(&mut generation).await;
        } else {
            whole.push(tokio::spawn(read(generation)));
        }
        sleep(Duration::from_millis(7)).await;
    }
    for reading in whole {
        assert!(reading.await.expect("read").finished.is_some());
    }
    world.assert_idle_and_empty().await;
    drop(world.engine);
    world.task.await;
    let segment = written(&directory.0.join("run.000001"));
    let replayed = replay(&segment).unwrap_or_else(|error| panic!("{error}"));
    assert!(replayed.plans > 50, "{replayed:?}");
}

/// The writer is a thread in real time: waits until it has written all.
fn written(path: &std::path::Path) -> Vec<u8> {
    let mut last = Vec::new();
    for _ in 0..200 {
        let now = std::fs::read(path).unwrap_or_default();
        if !now.is_empty() && now.len() == last.len() {
            return now;
        }
        last = now;
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} is not written", path.display());
}
