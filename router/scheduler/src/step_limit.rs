//! How large a step may be, after one was too large for the shard's memory.
//!
//! A step that ran out of memory is computed again in smaller ones: half its tokens at most. The limit is doubled now
//! and then, since what took the memory may be gone.

use serde::{Deserialize, Serialize};

use crate::units::Tokens;

/// Steps that must land before the limit is doubled.
const STEPS_BEFORE_MORE: u32 = 1000;

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct StepLimit {
    /// Prompt tokens and decode rows together. `None`: what the configuration says.
    most: Option<Tokens>,
    landed: u32,
}

impl StepLimit {
    pub fn most(&self) -> Option<Tokens> {
        self.most
    }

    /// A step of so many tokens ran out of memory. `false`: nothing smaller can be tried.
    pub fn exceeded(&mut self, tokens: Tokens) -> bool {
        self.landed = 0;
        let half = Tokens(tokens.0 / 2);
        if half == Tokens::ZERO {
            return false;
        }
        self.most = Some(self.most.map_or(half, |most| most.min(half)));
        true
    }

    /// A step landed. `largest`: the most tokens that the configuration allows a step.
    pub fn landed(&mut self, largest: Tokens) {
        let Some(most) = self.most else { return };
        self.landed += 1;
        if self.landed >= STEPS_BEFORE_MORE {
            self.landed = 0;
            self.most = Some(Tokens(most.0.saturating_mul(2))).filter(|more| *more < largest);
        }
    }

    /// Whether another row may join so many.
    pub fn admits(&self, rows: usize) -> bool {
        self.most.is_none_or(|most| rows < most.0 as usize)
    }

    /// Of a budget of prompt tokens, what may go with so many decode rows.
    pub fn prompt_tokens(&self, budget: Tokens, decodes: usize) -> Tokens {
        self.most.map_or(budget, |most| budget.min(most.saturating_sub(Tokens(decodes as u32))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_halves_until_one_token_is_left() {
        let mut limit = StepLimit::default();
        assert!(limit.admits(usize::MAX));
        assert!(limit.exceeded(Tokens(7)));
        assert_eq!(limit.most(), Some(Tokens(3)));
        assert!(limit.exceeded(Tokens(9)), "it was under way already");
        assert_eq!(limit.most(), Some(Tokens(3)));
        assert!(limit.exceeded(Tokens(3)));
        assert!(!limit.exceeded(Tokens(1)));
    }

    #[test]
    fn the_limit_holds_for_rows_and_prompt_tokens_together() {
        let mut limit = StepLimit::default();
        assert_eq!(limit.prompt_tokens(Tokens(512), 40), Tokens(512));
        limit.exceeded(Tokens(100));
        assert_eq!(limit.prompt_tokens(Tokens(512), 40), Tokens(10));
        assert_eq!(limit.prompt_tokens(Tokens(512), 60), Tokens::ZERO);
        assert_eq!(limit.prompt_tokens(Tokens(5), 40), Tokens(5));
        assert!(limit.admits(49) && !limit.admits(50));
    }

    #[test]
    fn it_grows_back() {
        let mut limit = StepLimit::default();
        limit.exceeded(Tokens(200));
        for (after, most) in [(999, Some(100)), (1, Some(200)), (1000, Some(400)), (1000, None)] {
            (0..after).for_each(|_| limit.landed(Tokens(500)));
            assert_eq!(limit.most(), most.map(Tokens));
        }
    }
}
