//! The fake machine in time: results come when the cost model says, unless a failure comes first.

use std::collections::VecDeque;
use std::time::Duration;

use headrace_scheduler::{Epoch, Row, StepPlan};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::FakeShard;
use super::cost::CostModel;
use super::handle::{Controls, FakeHandle};
use super::machine::Machine;
use crate::error::ShardError;
use crate::result::StepResult;
use crate::sampling::Sampling;
use crate::session::MAX_STEPS_IN_FLIGHT;
use crate::wire::check_plan;

#[derive(Debug)]
pub(crate) struct FakeSession {
    machine: Machine,
    cost: CostModel,
    limit: Duration,
    number: u64,
    handle: FakeHandle,
    controls: watch::Receiver<Controls>,
    under_way: VecDeque<UnderWay>,
    /// When the device has done all it was given.
    busy_until: Instant,
    /// The runtime has run others since the last step was sent; see `let_others_run`.
    yielded: bool,
    ended: Option<ShardError>,
}

/// A step that was computed and waits for its time.
#[derive(Debug)]
struct UnderWay {
    result: StepResult,
    /// When it began.
    start: Instant,
    /// When it is done.
    ready: Instant,
}

impl FakeSession {
    pub(super) fn open(shard: &FakeShard) -> Result<Self, ShardError> {
        let (number, pool) = shard.handle.open()?;
        Ok(Self {
            machine: Machine::new(&shard.facts, shard.rule.clone(), pool),
            cost: shard.cost,
            limit: shard.deadlines.step,
            number,
            controls: shard.handle.watch(),
            handle: shard.handle.clone(),
            under_way: VecDeque::with_capacity(MAX_STEPS_IN_FLIGHT),
            busy_until: Instant::now(),
            yielded: false,
            ended: None,
        })
    }

    pub(crate) fn send_filter(&mut self, rows: &[(Row, Epoch)]) -> Result<(), ShardError> {
        self.check_open()?;
        self.machine.filter(rows);
        Ok(())
    }

    pub(crate) fn send_step(&mut self, plan: &StepPlan, sampling: &[Sampling]) -> Result<(), ShardError> {
        self.check_open()?;
        check_plan(plan, sampling, self.under_way.len()).map_err(|error| self.end(error))?;
        let rows = plan.chunks.iter().map(|chunk| chunk.row).chain(plan.decodes.iter().map(|decode| decode.row));
        let failures = self.handle.take_failures(rows);
        let mut result = self.machine.step(plan, sampling, &failures);
        self.handle.count_prompt_tokens(plan.chunks.iter().map(|chunk| u64::from(chunk.tokens.0)).sum());

        let cost = self.cost.of(plan.tokens().0, (plan.chunks.len() + plan.decodes.len()) as u32);
        let now = Instant::now();
        let start = now.max(self.busy_until);
        self.busy_until = start + cost;
        result.timing.inbox_us = micros(start - now);
        result.timing.forward_us = micros(cost);
        self.under_way.push_back(UnderWay { result, start, ready: self.busy_until });
        self.yielded = false;
        Ok(())
    }

    pub(crate) async fn next_result(&mut self) -> Result<StepResult, ShardError> {
        self.let_others_run().await;
        loop {
            match self.try_result() {
                Some(result) => return result,
                None => self.wait(self.wakes_at()).await,
            }
        }
    }

    /// The oldest step's result if its time has come, or why there is none any more.
    pub(crate) fn try_result(&mut self) -> Option<Result<StepResult, ShardError>> {
        let stalled = self.controls.borrow_and_update().stalled; // before the check, so that no change is missed
        if let Err(error) = self.check_open() {
            return Some(Err(error));
        }
        let oldest = self.under_way.front()?;
        let now = Instant::now();
        let deadline = oldest.start + self.limit;
        if !stalled && oldest.ready <= now.min(deadline) {
            return self.under_way.pop_front().map(|step| Ok(step.result));
        }
        (deadline <= now).then(|| Err(self.end(ShardError::Hung { ranks: vec![0], silent: false, limit: self.limit })))
    }

    /// When the oldest step has its result or is late; `None` when there is none.
    fn wakes_at(&self) -> Option<Instant> {
        let oldest = self.under_way.front()?;
        let deadline = oldest.start + self.limit;
        Some(if self.controls.borrow().stalled { deadline } else { oldest.ready.min(deadline) })
    }

    /// A real shard's result is never there in the same instant. Without this, free steps would keep an engine's task
    /// running for ever, and nobody else on its thread.
    async fn let_others_run(&mut self) {
        if !self.yielded {
            self.yielded = true;
            tokio::task::yield_now().await;
        }
    }

    /// Until the handle does something, or `until`.
    async fn wait(&mut self, until: Option<Instant>) {
        let changed = async { drop(self.controls.changed().await) }; // cannot close: we hold the handle
        match until {
            None => changed.await,
            Some(until) => tokio::select! {
                () = changed => {}
                () = sleep_until(until) => {}
            },
        }
    }

    fn check_open(&mut self) -> Result<(), ShardError> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let controls = self.controls.borrow();
        if controls.newest == self.number {
            return Ok(());
        }
        let error = ShardError::SessionEnded { rank: 0, reason: controls.ending.into() };
        drop(controls);
        Err(self.end(error))
    }

    fn end(&mut self, error: ShardError) -> ShardError {
        self.under_way.clear();
        self.ended = Some(error.clone());
        error
    }
}

fn micros(duration: Duration) -> u32 {
    duration.as_micros().try_into().unwrap_or(u32::MAX)
}
