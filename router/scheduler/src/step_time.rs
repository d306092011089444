//! What a step costs: a model of five terms, fitted to the steps that were measured.
//!
//! ```text
//! t = base + per_token · tokens + per_row · sampling rows + per_context · Σ context of decode rows
//!          + per_pair · Σ (tokens · context) of chunks            [µs]
//! ```
//!
//! A decode row reads its whole context once for one token; a chunk's token shares that read with its neighbours, so a
//! (token, context) pair of a chunk costs far less: hence two terms. Least squares over recent steps, with `+ − × ÷` of
//! f64 only, which give the same bits on every machine; decisions compare whole microseconds.

use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

use crate::least_squares::{TERMS, solve_non_negative};
use crate::plan::StepPlan;
use crate::units::{Micros, Tokens};

/// Before this many steps are known the default counts.
pub const ENOUGH_STEPS: u32 = 50;
/// The fit is made anew after this many steps.
const REFIT_AFTER: u32 = 16;
/// How fast old steps are forgotten: a step's weight halves in about 700 more.
const KEEP: f64 = 0.999;
/// Keeps the solution defined where steps never differed in a term.
const RIDGE: f64 = 1e-6;

/// Typical sizes of the terms, so that the equations are well conditioned.
const SCALE: [f64; TERMS] = [1.0, 128.0, 32.0, 16384.0, 131_072.0];

/// Coefficients in µs. The same five keys are what `headrace simulate --cost-model` reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// Every step.
    pub base: f64,
    /// Each token of the forward pass.
    pub per_token: f64,
    /// Each row that samples.
    pub per_row: f64,
    /// Each token of context that a decode row reads.
    pub per_context: f64,
    /// Each pair of a chunk's token and a token of its context.
    pub per_pair: f64,
}

/// What a step's cost depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepShape {
    pub tokens: u64,
    pub sampling_rows: u64,
    pub decode_context: u64,
    pub chunk_pairs: u64,
}

impl StepShape {
    pub fn of(plan: &StepPlan) -> Self {
        let mut shape = Self::default();
        plan.chunks.iter().for_each(|chunk| shape.add_chunk(chunk.start, chunk.tokens, chunk.samples));
        plan.decodes.iter().for_each(|decode| shape.add_decode(decode.position));
        shape
    }

    /// A row that decodes with `context` tokens before the one it computes.
    pub fn add_decode(&mut self, context: Tokens) {
        self.add_decodes(context, 1);
    }

    /// A row that decodes `steps` times, at first with `context` tokens before the one it computes.
    pub fn add_decodes(&mut self, context: Tokens, steps: u32) {
        let (context, steps) = (u64::from(context.0), u64::from(steps));
        self.tokens += steps;
        self.sampling_rows += steps;
        self.decode_context += steps * context + steps * (steps + 1) / 2;
    }

    /// A chunk that starts at `start`. Its token `i` reads `start + i + 1` tokens.
    pub fn add_chunk(&mut self, start: Tokens, tokens: Tokens, samples: bool) {
        let (start, count) = (u64::from(start.0), u64::from(tokens.0));
        self.tokens += count;
        self.sampling_rows += u64::from(samples);
        self.chunk_pairs += count * start + count * (count + 1) / 2;
    }

    fn terms(self) -> [f64; TERMS] {
        let terms = [1, self.tokens, self.sampling_rows, self.decode_context, self.chunk_pairs];
        let mut scaled = [0.0; TERMS];
        (0..TERMS).for_each(|i| scaled[i] = terms[i] as f64 / SCALE[i]);
        scaled
    }
}

impl AddAssign for StepShape {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.sampling_rows += other.sampling_rows;
        self.decode_context += other.decode_context;
        self.chunk_pairs += other.chunk_pairs;
    }
}

impl SubAssign for StepShape {
    fn sub_assign(&mut self, other: Self) {
        self.tokens -= other.tokens;
        self.sampling_rows -= other.sampling_rows;
        self.decode_context -= other.decode_context;
        self.chunk_pairs -= other.chunk_pairs;
    }
}

impl StepCost {
    /// A small model on a CPU of two cores: what counts before the first steps were measured.
    pub const DEFAULT: Self =
        Self { base: 12_000.0, per_token: 300.0, per_row: 100.0, per_context: 1.0, per_pair: 0.05 };

    pub fn predict(&self, shape: StepShape) -> Micros {
        self.predict_steps(shape, 1.0)
    }

    /// Of so many steps, whose shapes together are `shape`.
    pub fn predict_steps(&self, shape: StepShape, steps: f64) -> Micros {
        let time = self.base * steps
            + self.per_token * shape.tokens as f64
            + self.per_row * shape.sampling_rows as f64
            + self.per_context * shape.decode_context as f64
            + self.per_pair * shape.chunk_pairs as f64;
        Micros(time as u64)
    }

    /// The longest chunk from `start`, at most `most`, with which a step of `shape` is predicted to take no longer than
    /// `target`; 0 if even one token is too many.
    pub fn chunk_within(&self, target: Micros, shape: StepShape, start: Tokens, most: Tokens) -> Tokens {
        let fits = |tokens: u32| {
            let mut with = shape;
            with.add_chunk(start, Tokens(tokens), true);
            self.predict(with) <= target
        };
        if fits(most.0) {
            return most;
        }
        // What fits is a beginning of 0 … most: halve the rest until it is one.
        let (mut fit, mut unfit) = (0, most.0);
        while unfit - fit > 1 {
            let middle = fit + (unfit - fit) / 2;
            if fits(middle) { fit = middle } else { unfit = middle }
        }
        Tokens(fit)
    }
}

/// Learns a [`StepCost`] from steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepTimes {
    /// Σ weight · term · term, and Σ weight · term · time.
    products: [[f64; TERMS]; TERMS],
    times: [f64; TERMS],
    steps: u32,
    cost: StepCost,
}

impl Default for StepTimes {
    fn default() -> Self {
        Self { products: [[0.0; TERMS]; TERMS], times: [0.0; TERMS], steps: 0, cost: StepCost::DEFAULT }
    }
}

impl StepTimes {
    pub fn cost(&self) -> &StepCost {
        &self.cost
    }

    /// Steps learned from.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    pub fn learn(&mut self, shape: StepShape, took: Micros) {
        let terms = shape.terms();
        let took = took.0 as f64;
        for i in 0..TERMS {
            for j in 0..TERMS {
                self.products[i][j] = self.products[i][j] * KEEP + terms[i] * terms[j];
            }
            self.times[i] = self.times[i] * KEEP + terms[i] * took;
        }
        self.steps = self.steps.saturating_add(1);
        if self.steps >= ENOUGH_STEPS && self.steps.is_multiple_of(REFIT_AFTER) {
            self.cost = self.fit();
        }
    }

    /// The best coefficients that are not negative.
    pub fn fit(&self) -> StepCost {
        let solution = solve_non_negative(&self.products, &self.times, RIDGE);
        let of = |i: usize| solution[i] / SCALE[i];
        StepCost { base: of(0), per_token: of(1), per_row: of(2), per_context: of(3), per_pair: of(4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUE: StepCost =
        StepCost { base: 9_000.0, per_token: 120.0, per_row: 40.0, per_context: 0.9, per_pair: 0.03 };

    /// Steps of many shapes, from a small generator with a fixed seed.
    fn shapes(count: u32) -> Vec<StepShape> {
        let mut random = 7_u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 33) % limit) as u32
        };
        let any = |_| {
            let mut shape = StepShape::default();
            (0..below(64)).for_each(|_| shape.add_decode(Tokens(below(2000))));
            (0..below(3)).for_each(|_| shape.add_chunk(Tokens(below(3000)), Tokens(1 + below(512)), below(2) == 0));
            shape
        };
        (0..count).map(any).collect()
    }

    #[test]
    fn until_fifty_steps_are_known_the_default_counts() {
        let mut times = StepTimes::default();
        for shape in shapes(ENOUGH_STEPS - 1) {
            times.learn(shape, TRUE.predict(shape));
            assert_eq!(times.cost(), &StepCost::DEFAULT);
        }
    }

    #[test]
    fn the_coefficients_of_steps_that_follow_the_model_are_found() {
        let mut times = StepTimes::default();
        shapes(400).into_iter().for_each(|shape| times.learn(shape, TRUE.predict(shape)));
        for shape in shapes(50) {
            let (found, right) = (times.cost().predict(shape).0 as i64, TRUE.predict(shape).0 as i64);
            assert!((found - right).abs() * 100 <= right, "{found} µs, not {right}, for {shape:?}");
        }
    }

    #[test]
    fn decode_steps_alone_leave_no_term_negative() {
        let mut times = StepTimes::default();
        for context in 0..500 {
            let mut shape = StepShape::default();
            (0..8).for_each(|_| shape.add_decode(Tokens(100 + context)));
            times.learn(shape, Micros(10_000 + u64::from(context % 7)));
        }
        let cost = times.cost();
        for term in [cost.base, cost.per_token, cost.per_row, cost.per_context, cost.per_pair] {
            assert!(term >= 0.0, "{cost:?}");
        }
        let mut shape = StepShape::default();
        (0..8).for_each(|_| shape.add_decode(Tokens(300)));
        assert!((9_900..=10_100).contains(&cost.predict(shape).0));
    }

    #[test]
    fn the_same_steps_give_the_same_bits() {
        let fit = || {
            let mut times = StepTimes::default();
            shapes(200).into_iter().for_each(|shape| times.learn(shape, Micros(TRUE.predict(shape).0 / 7)));
            *times.cost()
        };
        assert_eq!(fit(), fit());
    }

    #[test]
    fn the_longest_chunk_within_a_target_is_found() {
        let mut shape = StepShape::default();
        shape.add_decode(Tokens(100));
        for target in [5_000, 12_000, 30_000, 60_000, 1_000_000] {
            let within = TRUE.chunk_within(Micros(target), shape, Tokens(1000), Tokens(512));
            let time = |tokens: u32| {
                let mut with = shape;
                with.add_chunk(Tokens(1000), Tokens(tokens), true);
                TRUE.predict(with)
            };
            assert!(within.0 == 0 || time(within.0) <= Micros(target), "{within} within {target} µs");
            assert!(within.0 == 512 || time(within.0 + 1) > Micros(target), "{within} within {target} µs");
        }
    }
}
