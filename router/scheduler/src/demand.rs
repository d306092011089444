//! What the queue asks of the steps to come, and so how long it will take: the basis of refusing early.
//!
//! A request keeps a row for as many steps as its answer is expected to be long. So the queue is drained after about the
//! steps of all that wait ÷ the rows that can run together, and their time follows from what steps cost. What runs
//! already does not appear: when the queue is drained, rows are as far from their ends as they are now.
//!
//! It does not look at how fast the queue was served lately. Short answers leave a fresh batch first, so the queue moves
//! fast until the rows are full of long ones: a rate that was measured then promises twice what is kept.

use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::step_time::{StepCost, StepShape};
use crate::units::{Micros, Tokens};

/// Of one request or of many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Demand {
    /// Of all their chunks and decode rows.
    shape: StepShape,
    /// Tokens of prompts among them.
    prompt: u64,
}

impl Demand {
    /// Of a request with `known` tokens, `uncached` of which it must compute, and then so many more to come.
    pub fn of(known: Tokens, uncached: Tokens, to_come: Tokens) -> Self {
        let mut shape = StepShape::default();
        shape.add_chunk(known - uncached, uncached, true);
        // The chunk samples the first of them.
        shape.add_decodes(known, to_come.0.saturating_sub(1));
        Self { shape, prompt: u64::from(uncached.0) }
    }

    /// How long steps take that serve all of it, on `rows` rows.
    pub fn time(&self, cost: &StepCost, rows: u32, config: &Config) -> Micros {
        // A row samples in each step in which it is kept, but for a long prompt's first ones.
        let for_rows = self.shape.sampling_rows as f64 / f64::from(rows.max(1));
        let for_prompts = self.prompt as f64 / f64::from(config.max_batch_prefill_tokens.0);
        cost.predict_steps(self.shape, for_rows.max(for_prompts))
    }
}

impl AddAssign for Demand {
    fn add_assign(&mut self, other: Self) {
        self.shape += other.shape;
        self.prompt += other.prompt;
    }
}

impl SubAssign for Demand {
    fn sub_assign(&mut self, other: Self) {
        self.shape -= other.shape;
        self.prompt -= other.prompt;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: StepCost = StepCost { base: 10_000.0, per_token: 100.0, per_row: 0.0, per_context: 0.0, per_pair: 0.0 };

    fn budget(tokens: u32) -> Config {
        Config { max_batch_prefill_tokens: Tokens(tokens), ..Config::default() }
    }

    fn sum(count: u32, one: Demand) -> Demand {
        (0..count).fold(Demand::default(), |mut sum, _| {
            sum += one;
            sum
        })
    }

    #[test]
    fn answers_take_their_steps_divided_among_the_rows() {
        let queue = sum(8, Demand::of(Tokens(1), Tokens(1), Tokens(50)));
        // 8 × 50 row-steps are 100 steps of 4 rows, with 400 tokens.
        assert_eq!(queue.time(&COST, 4, &budget(512)), Micros(100 * 10_000 + 400 * 100));
    }

    #[test]
    fn prompts_take_the_steps_of_their_budget_where_those_are_more() {
        let queue = sum(8, Demand::of(Tokens(1000), Tokens(1000), Tokens(1)));
        assert_eq!(queue.time(&COST, 4, &budget(100)), Micros(80 * 10_000 + 8000 * 100));
    }

    #[test]
    fn what_is_cached_costs_nothing_but_is_read() {
        let (all, cached) =
            (Demand::of(Tokens(96), Tokens(96), Tokens(9)), Demand::of(Tokens(96), Tokens(16), Tokens(9)));
        assert_eq!(all.shape.tokens - cached.shape.tokens, 80);
        assert_eq!(all.shape.decode_context, cached.shape.decode_context);
    }

    #[test]
    fn what_left_is_not_counted_any_more() {
        let one = Demand::of(Tokens(30), Tokens(14), Tokens(7));
        let mut queue = sum(3, one);
        (0..3).for_each(|_| queue -= one);
        assert_eq!(queue, Demand::default());
    }
}
