//! Failures on demand, while the fake runs, and what it has done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headrace_scheduler::{Blocks, Row};
use tokio::sync::watch;

use crate::error::ShardError;

/// Steers a [`FakeShard`](super::FakeShard) from a test. Takes effect at once, also on a `next_result` that waits.
#[derive(Clone, Debug)]
pub struct FakeHandle {
    controls: Arc<watch::Sender<Controls>>,
    /// Tokens of all chunks so far.
    prefilled: Arc<AtomicU64>,
}

/// What Warmup agreed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    pub(super) blocks: Blocks,
    pub(super) host_blocks: Blocks,
    pub(super) max_batch_size: u32,
}

/// What the handle sets and sessions watch.
#[derive(Debug)]
pub(super) struct Controls {
    pub(super) alive: bool,
    pub(super) stalled: bool,
    /// Number of the newest session; a session with a lower one is over.
    pub(super) newest: u64,
    /// Why the sessions before `newest` are over.
    pub(super) ending: &'static str,
    /// What memory allows.
    offered: Blocks,
    /// `None`: Warmup is due.
    pub(super) pool: Option<Pool>,
    failing_rows: Vec<Row>,
    /// How the next steps fail, one after the other.
    failing_steps: VecDeque<StepFailure>,
}

/// How a step is made to fail as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepFailure {
    Injected,
    Memory,
}

impl StepFailure {
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::Injected => "injected failure of the step",
            Self::Memory => "injected lack of memory",
        }
    }
}

impl FakeHandle {
    pub(super) fn new(offered: Blocks) -> Self {
        let controls = Controls {
            alive: true,
            stalled: false,
            newest: 0,
            ending: "",
            offered,
            pool: None,
            failing_rows: Vec::new(),
            failing_steps: VecDeque::new(),
        };
        Self { controls: Arc::new(watch::Sender::new(controls)), prefilled: Arc::default() }
    }

    /// `row` fails in the next step sent that holds it (once), and stays failed until it is given away.
    pub fn fail_row(&self, row: Row) {
        self.controls.send_modify(|controls| controls.failing_rows.push(row));
    }

    /// The next step sent fails as a whole. Called twice: the next two.
    pub fn fail_next_step(&self) {
        self.controls.send_modify(|controls| controls.failing_steps.push_back(StepFailure::Injected));
    }

    /// There is no memory for the next step sent.
    pub fn next_step_lacks_memory(&self) {
        self.controls.send_modify(|controls| controls.failing_steps.push_back(StepFailure::Memory));
    }

    /// The open session ends now, results under way are lost; a new one can be opened at once.
    pub fn end_session(&self) {
        self.end("the shard ended it");
    }

    /// The process dies: the session ends, every call is `Unreachable` until [`come_back`](Self::come_back).
    pub fn die(&self) {
        self.controls.send_modify(|controls| {
            controls.alive = false;
            controls.pool = None;
        });
        self.end("the connection was lost");
    }

    /// A new process: nothing stalls, and Warmup is due before the next session.
    pub fn come_back(&self) {
        self.controls.send_modify(|controls| {
            controls.alive = true;
            controls.stalled = false;
        });
    }

    /// No result comes until [`resume`](Self::resume); after `Deadlines::step` the session ends with `Timeout`.
    pub fn stall(&self) {
        self.controls.send_modify(|controls| controls.stalled = true);
    }

    /// Results come again.
    pub fn resume(&self) {
        self.controls.send_modify(|controls| controls.stalled = false);
    }

    /// The pool that memory allows at the next Warmup.
    pub fn set_blocks(&self, blocks: Blocks) {
        self.controls.send_modify(|controls| controls.offered = blocks);
    }

    /// How many sessions were opened or ended: grows when either happens.
    pub fn sessions(&self) -> u64 {
        self.controls.borrow().newest
    }

    /// Prompt tokens that were computed, in all sessions; what was found in the prefix cache is not among them.
    pub fn prompt_tokens_computed(&self) -> u64 {
        self.prefilled.load(Ordering::Relaxed)
    }

    pub(super) fn count_prompt_tokens(&self, tokens: u64) {
        self.prefilled.fetch_add(tokens, Ordering::Relaxed);
    }

    fn end(&self, ending: &'static str) {
        self.controls.send_modify(|controls| controls.supersede(ending));
    }

    pub(super) fn alive(&self) -> Result<(), ShardError> {
        self.controls.borrow().check_alive()
    }

    pub(super) fn offered(&self) -> Blocks {
        self.controls.borrow().offered
    }

    pub(super) fn warm(&self, pool: Pool) {
        self.controls.send_modify(|controls| controls.pool = Some(pool));
    }

    /// Ends every older session and counts a new one: its number and its pool.
    pub(super) fn open(&self) -> Result<(u64, Pool), ShardError> {
        let mut opened = Err(ShardError::Refused {
            rank: 0,
            call: "a session",
            reason: "Warmup has not agreed on a pool yet".into(),
        });
        self.controls.send_modify(|controls| {
            if let Err(error) = controls.check_alive() {
                opened = Err(error);
            } else if let Some(pool) = controls.pool {
                controls.supersede("a newer session was opened");
                opened = Ok((controls.newest, pool));
            }
        });
        opened
    }

    pub(super) fn watch(&self) -> watch::Receiver<Controls> {
        self.controls.subscribe()
    }

    /// What fails in a step that holds these rows; each injected failure is taken once.
    pub(super) fn take_failures(&self, rows: impl Iterator<Item = Row> + Clone) -> Failures {
        let mut failures = Failures::default();
        if !self.controls.borrow().has_failures() {
            return failures; // the common case takes no write lock
        }
        self.controls.send_modify(|controls| {
            failures.step = controls.failing_steps.pop_front();
            let (hit, missed) =
                std::mem::take(&mut controls.failing_rows).into_iter().partition(|row| rows.clone().any(|r| r == *row));
            failures.rows = hit;
            controls.failing_rows = missed;
        });
        failures
    }
}

/// Injected failures of one step.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub(super) step: Option<StepFailure>,
    pub(super) rows: Vec<Row>,
}

impl Controls {
    fn supersede(&mut self, ending: &'static str) {
        self.newest += 1;
        self.ending = ending;
    }

    fn has_failures(&self) -> bool {
        !self.failing_steps.is_empty() || !self.failing_rows.is_empty()
    }

    fn check_alive(&self) -> Result<(), ShardError> {
        if self.alive {
            return Ok(());
        }
        Err(ShardError::Unreachable { rank: 0, address: "fake".into(), reason: "the fake shard is dead".into() })
    }
}
