//! The event loop: the scheduler, a pretended shard, and time that jumps.
//!
//! As the engine does it, two steps may be in flight, and the second one is planned as late as possible: `router` before
//! the shard ends the first, so that a request which has arrived by then is in it and the shard never waits. A plan is
//! therefore made without knowing what the step before it samples: an answer that ends by itself costs its row one step
//! more, just as it does on a server.

mod clients;

use std::collections::{BTreeSet, HashMap, VecDeque};

use headrace_scheduler::trace::TracedScheduler;
use headrace_scheduler::{
    Blocks, Config, Event, FinishReason, Micros, RequestId, StepOutcome, StepPlan, StepShape, Tenant,
};

use crate::cost_model::CostModel;
use crate::pretend_shard::PretendShard;
use crate::run::{Bars, Ending, Outcome, Run};
use crate::tokens::{END_OF_SEQUENCE, TokenIds};
use crate::workload::Workload;

/// The scheduler has requests, and neither plans a step nor says when it will.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stuck at {} ms with {unfinished} unfinished requests; this is a bug of the scheduler:\n{state}", at.0 / 1000)]
pub struct Stuck {
    pub at: Micros,
    pub unfinished: usize,
    /// The scheduler, one line a row.
    pub state: String,
}

/// Runs a workload to its end. `config.eos` is set here: answers end by it when clients allow more than they get.
///
/// Pure: equal arguments give equal runs.
///
/// # Errors
///
/// [`Stuck`], which a correct scheduler never is.
pub fn simulate(workload: &Workload, config: &Config, cost: &CostModel) -> Result<Run, Stuck> {
    World::new(workload, config, cost).run().map(|(run, _)| run)
}

/// [`simulate`], with the trace that a server would have written of it, in segments of so many steps.
///
/// # Errors
///
/// As there.
pub fn record(
    workload: &Workload,
    config: &Config,
    cost: &CostModel,
    segment_steps: u64,
) -> Result<(Run, Vec<Vec<u8>>), Stuck> {
    let mut world = World::new(workload, config, cost);
    world.scheduler.begin_segment();
    world.segment_steps = Some(segment_steps);
    world.run()
}

struct World<'a> {
    workload: &'a Workload,
    cost: &'a CostModel,
    scheduler: TracedScheduler,
    /// Length of a trace's segment; `None`: nothing is recorded.
    segment_steps: Option<u64>,
    segments: Vec<Vec<u8>>,
    shard: PretendShard,
    ids: TokenIds,
    tenants: HashMap<&'a str, Tenant>,
    /// Places in the workload.
    numbers: HashMap<RequestId, usize>,
    outcomes: Vec<Outcome>,
    /// When clients will be gone.
    departures: BTreeSet<(Micros, RequestId)>,
    bars: Bars,
    now: Micros,
    /// Oldest first; at most two.
    in_flight: VecDeque<Flight>,
    /// When the shard is done with all that was sent.
    free_at: Micros,
    /// The scheduler had nothing to plan, and nothing has happened since.
    settled: bool,
    planned_rows: u64,
    peak_blocks: Blocks,
    max_batch_size: u32,
}

struct Flight {
    plan: StepPlan,
    took: Micros,
    ends: Micros,
}

impl<'a> World<'a> {
    fn new(workload: &'a Workload, config: &Config, cost: &'a CostModel) -> Self {
        let config = Config { eos: vec![END_OF_SEQUENCE], ..config.clone() };
        let mut tenants = HashMap::new();
        for arrival in workload.arrivals() {
            let next = Tenant(tenants.len() as u32);
            tenants.entry(arrival.tenant.as_str()).or_insert(next);
        }
        let began = workload.arrivals().first().map_or(Micros::ZERO, |first| first.at);
        Self {
            workload,
            cost,
            ids: TokenIds::new(workload, config.max_total_tokens),
            max_batch_size: config.max_batch_size,
            scheduler: TracedScheduler::new(config),
            segment_steps: None,
            segments: Vec::new(),
            departures: BTreeSet::new(),
            shard: PretendShard::default(),
            tenants,
            numbers: HashMap::new(),
            outcomes: Vec::with_capacity(workload.arrivals().len()),
            bars: Bars::default(),
            now: began,
            in_flight: VecDeque::new(),
            free_at: began,
            settled: true,
            planned_rows: 0,
            peak_blocks: Blocks::ZERO,
        }
    }

    /// At one moment, arrivals come before plans and plans before results: a plan is on its way before the step under
    /// way has landed.
    fn run(mut self) -> Result<(Run, Vec<Vec<u8>>), Stuck> {
        while let Some(moment) = self.next_moment() {
            self.now = moment;
            self.submit_arrived();
            self.cancel_departed();
            if self.plan_is_due() {
                self.plan();
            }
            self.land();
            self.take_events();
        }
        self.finish()
    }

    fn next_moment(&self) -> Option<Micros> {
        let arrival = self.workload.arrivals().get(self.outcomes.len()).map(|arrival| arrival.at);
        let landing = self.in_flight.front().map(|flight| flight.ends);
        let plan = if self.settled { None } else { self.plan_due() };
        let wake = self.scheduler.wakes_at().filter(|&moment| moment > self.now);
        let departure = self.departures.first().map(|(moment, _)| *moment);
        [arrival, landing, plan, wake, departure].into_iter().flatten().min()
    }

    /// When the next plan is made, if it is not two steps ahead.
    fn plan_due(&self) -> Option<Micros> {
        match self.in_flight.len() {
            0 => Some(self.now),
            1 => Some(self.free_at.saturating_sub(self.cost.lead.unwrap_or(self.cost.router)).max(self.now)),
            _ => None,
        }
    }

    fn plan_is_due(&self) -> bool {
        let woken = self.scheduler.wakes_at().is_some_and(|moment| moment <= self.now);
        (!self.settled || woken) && self.plan_due() == Some(self.now)
    }

    fn plan(&mut self) {
        let plan = self.scheduler.plan_step(self.now);
        // The shard keeps nothing of a row that was given back.
        while self.scheduler.poll_release().is_some() {}
        self.take_events();
        let Some(plan) = plan else {
            self.settled = true;
            return;
        };
        self.peak_blocks = self.peak_blocks.max(self.scheduler.stats().blocks.held);
        for admission in &plan.admitted {
            let number = self.numbers[&admission.request];
            self.outcomes[number].planned.get_or_insert(self.now);
        }
        self.send(plan);
    }

    fn send(&mut self, plan: StepPlan) {
        let took = self.cost.step.predict(StepShape::of(&plan));
        let began = (self.free_at + self.cost.gap).max(self.now + self.cost.router);
        let ends = began + took;
        self.bars.add(&plan, began, ends, |request| self.numbers[&request]);
        self.planned_rows += (plan.chunks.len() + plan.decodes.len()) as u64;
        self.free_at = ends;
        self.in_flight.push_back(Flight { plan, took, ends });
    }

    /// The oldest step's result, if it is there.
    fn land(&mut self) {
        if self.in_flight.front().is_none_or(|flight| flight.ends > self.now) {
            return;
        }
        let Some(flight) = self.in_flight.pop_front() else { return };
        let samples = self.shard.sample(&flight.plan);
        let outcome = StepOutcome::Done { samples, failed: Vec::new(), took: flight.took };
        self.scheduler.complete_step(flight.plan.step, outcome, self.now);
        self.settled = false;
        if self.segment_steps.is_some_and(|steps| flight.plan.step.0.is_multiple_of(steps)) {
            self.segments.push(self.scheduler.take_trace());
            self.scheduler.begin_segment();
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.scheduler.poll_event() {
            match event {
                Event::Token { request, .. } => {
                    let number = self.numbers[&request];
                    self.outcomes[number].tokens.push(self.now);
                }
                Event::Preempted { .. } => {}
                Event::Finished { request, reason, .. } => self.end(request, reason),
            }
        }
    }

    fn end(&mut self, request: RequestId, reason: FinishReason) {
        let ending = match reason {
            FinishReason::DeadlineMissed => Ending::DeadlineMissed,
            FinishReason::Displaced => Ending::Rejected,
            FinishReason::Length | FinishReason::EndOfSequence => Ending::Answered,
            FinishReason::Cancelled => Ending::Left,
            FinishReason::StopString | FinishReason::Failed => {
                unreachable!("nothing is stopped or fails here, but {request} ended with {reason:?}")
            }
        };
        self.shard.forget(request);
        let outcome = &mut self.outcomes[self.numbers[&request]];
        assert!(outcome.ending.is_none(), "request {request} ended twice: a bug of the scheduler");
        outcome.ending = Some((ending, self.now));
    }

    fn finish(mut self) -> Result<(Run, Vec<Vec<u8>>), Stuck> {
        let unfinished = self.outcomes.iter().filter(|outcome| outcome.ending.is_none()).count();
        if unfinished > 0 {
            return Err(Stuck { at: self.now, unfinished, state: format!("{:?}", self.scheduler) });
        }
        let stats = self.scheduler.stats();
        let ends = self.outcomes.iter().filter_map(|outcome| outcome.ending).map(|(_, moment)| moment);
        let began = self.workload.arrivals().first().map_or(Micros::ZERO, |first| first.at);
        let run = Run {
            ended: ends.max().unwrap_or(began),
            requests: self.outcomes,
            bars: self.bars.finish(),
            max_batch_size: self.max_batch_size,
            steps: stats.steps,
            planned_rows: self.planned_rows,
            began,
            peak_blocks: self.peak_blocks,
            stats,
        };
        if self.segment_steps.is_some() {
            self.segments.push(self.scheduler.take_trace());
        }
        Ok((run, self.segments))
    }
}

#[cfg(test)]
mod tests;
