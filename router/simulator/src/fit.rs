//! The cost model of a recorded run: the five terms that explain its steps best, and how the router and the shard took
//! turns.
//!
//! Least squares of *relative* errors: a decode step that is 10 % off is as bad as a prompt's that is. Steps that took
//! more than three times as long as a first fit says, or less than a third, do not count: a first step that loads
//! something, a machine that was busy otherwise.

mod least_squares;

use headrace_scheduler::{Micros, StepCost, StepShape, Tokens};

use crate::cost_model::CostModel;
use crate::recording::{Recording, Step};
use least_squares::{TERMS, solve};

/// A step this many times slower or faster than the first fit is an outlier.
const OUTLIER: f64 = 3.0;
/// Fewer steps say nothing about five terms.
const FEWEST_STEPS: usize = 20;

/// A cost model, and how well it explains what it was made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    pub model: CostModel,
    pub quality: Quality,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Steps that landed and did not fail.
    pub steps: usize,
    /// Of these, how many did not count.
    pub outliers: usize,
    /// |predicted − measured| ÷ measured, of steps that count.
    pub mean_error_percent: f64,
    pub p99_error_percent: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trace has {steps} steps with a time, and a cost model needs at least {FEWEST_STEPS}")]
pub struct NothingToFit {
    pub steps: usize,
}

impl Fit {
    /// # Errors
    ///
    /// There are too few steps.
    pub fn of(recording: &Recording) -> Result<Self, NothingToFit> {
        let timed: Vec<Step> = recording.steps.iter().copied().filter(|step| step.took > Micros::ZERO).collect();
        if timed.len() < FEWEST_STEPS {
            return Err(NothingToFit { steps: timed.len() });
        }
        let first = least_squares_of(&timed);
        let usual: Vec<Step> = timed.iter().copied().filter(|step| is_usual(&first, step)).collect();
        let step = if usual.len() < FEWEST_STEPS { first } else { least_squares_of(&usual) };
        let counted = if usual.len() < FEWEST_STEPS { &timed } else { &usual };
        let turns = Turns::of(counted);
        let config = &recording.config;
        let model = CostModel {
            step,
            router: turns.router,
            lead: turns.lead,
            gap: turns.gap,
            pool: Tokens(config.total_blocks.0 * config.block_size.0),
            prefill: config.max_batch_prefill_tokens,
        };
        Ok(Self { model, quality: Quality::of(&step, counted, timed.len()) })
    }

    /// One line: what [`Quality`] and the cost model's file say.
    pub fn json(&self) -> String {
        let CostModel { step, router, lead, gap, pool, prefill } = self.model;
        let value = serde_json::json!({
            "steps": self.quality.steps,
            "outliers": self.quality.outliers,
            "mean_error_percent": self.quality.mean_error_percent,
            "p99_error_percent": self.quality.p99_error_percent,
            "model": {
                "base": step.base,
                "per_token": step.per_token,
                "per_row": step.per_row,
                "per_context": step.per_context,
                "per_pair": step.per_pair,
                "router": router.0,
                "lead": lead.map(|lead| lead.0),
                "gap": gap.0,
                "pool_tokens": pool.0,
                "prefill_tokens": prefill.0,
            },
        });
        value.to_string()
    }
}

/// What passes between steps.
struct Turns {
    router: Micros,
    lead: Option<Micros>,
    gap: Micros,
}

impl Turns {
    /// Medians: single steps wait for whatever else the machine does.
    fn of(steps: &[Step]) -> Self {
        let alone = steps.iter().filter(|step| step.behind.is_none());
        let router = median(alone.map(|step| since(step.planned, step.landed).saturating_sub(step.took)));
        let queued = || steps.iter().filter_map(|step| step.behind.map(|behind| (step, behind)));
        let lead = median(queued().map(|(step, behind)| since(step.planned, behind)));
        // One that was queued too late was waited for, and says nothing about a shard that has its next step at hand.
        let in_time = queued().filter(|(step, behind)| since(step.planned, *behind) >= router.unwrap_or_default());
        let gap = median(in_time.map(|(step, behind)| since(behind, step.landed).saturating_sub(step.took)));
        Self { router: router.unwrap_or_default(), lead, gap: gap.unwrap_or_default() }
    }
}

fn since(earlier: Micros, later: Micros) -> Micros {
    later.saturating_sub(earlier)
}

fn median(durations: impl Iterator<Item = Micros>) -> Option<Micros> {
    let mut durations: Vec<Micros> = durations.collect();
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied()
}

fn least_squares_of(steps: &[Step]) -> StepCost {
    // Divided by its time, every step is to come out as 1.
    let rows = steps.iter().map(|step| terms(step.shape).map(|term| term / step.took.0 as f64));
    let [base, per_token, per_row, per_context, per_pair] = solve(rows);
    StepCost { base, per_token, per_row, per_context, per_pair }
}

fn terms(shape: StepShape) -> [f64; TERMS] {
    let StepShape { tokens, sampling_rows, decode_context, chunk_pairs } = shape;
    [1, tokens, sampling_rows, decode_context, chunk_pairs].map(|term| term as f64)
}

/// Predicted ÷ measured.
fn ratio(cost: &StepCost, step: &Step) -> f64 {
    cost.predict(step.shape).0 as f64 / step.took.0 as f64
}

fn is_usual(cost: &StepCost, step: &Step) -> bool {
    (1.0 / OUTLIER..=OUTLIER).contains(&ratio(cost, step))
}

impl Quality {
    fn of(cost: &StepCost, counted: &[Step], steps: usize) -> Self {
        let mut errors: Vec<f64> = counted.iter().map(|step| (ratio(cost, step) - 1.0).abs() * 100.0).collect();
        errors.sort_unstable_by(f64::total_cmp);
        let rank = (errors.len() * 99).div_ceil(100).max(1) - 1;
        Self {
            steps,
            outliers: steps - counted.len(),
            mean_error_percent: errors.iter().sum::<f64>() / errors.len() as f64,
            p99_error_percent: errors[rank],
        }
    }
}

#[cfg(test)]
mod tests;
