//! How fast the queue is served, and so how long it will take: the basis of refusing early.
//!
//! The rate is what was measured, not what could be: tokens that left the queue for a row, over the time in which
//! somebody waited. So it knows of whatever keeps requests out, be it prompts, rows or blocks.

use serde::{Deserialize, Serialize};

use crate::units::Micros;

/// Both sums are halved when this much time was counted, so that old days are forgotten.
const WINDOW: Micros = Micros(10_000_000);
/// Less than this says nothing.
const ENOUGH_TIME: Micros = Micros(200_000);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServiceRate {
    /// Tokens that left the queue while somebody waited…
    tokens: u64,
    /// …and the time this took.
    busy: Micros,
    /// When the queue was looked at last, and whether somebody waited then.
    seen: Micros,
    waiting: bool,
}

impl ServiceRate {
    /// The queue as it is now.
    pub fn look(&mut self, now: Micros, waiting: bool) {
        if self.waiting {
            self.busy += now.saturating_sub(self.seen);
            if self.busy > WINDOW {
                self.busy = Micros(self.busy.0 / 2);
                self.tokens /= 2;
            }
        }
        self.seen = now;
        self.waiting = waiting;
    }

    /// A request with this many tokens to compute left the queue for a row.
    pub fn served(&mut self, tokens: u64) {
        if self.waiting {
            self.tokens += tokens;
        }
    }

    /// How long the queue takes to serve `tokens`; `None` before there is anything to go by.
    pub fn time_for(&self, tokens: u64) -> Option<Micros> {
        if tokens == 0 {
            return Some(Micros::ZERO);
        }
        if self.busy < ENOUGH_TIME || self.tokens == 0 {
            return None;
        }
        let time = u128::from(tokens) * u128::from(self.busy.0) / u128::from(self.tokens);
        Some(Micros(u64::try_from(time).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_anything_was_served_nothing_is_predicted() {
        let mut rate = ServiceRate::default();
        assert_eq!(rate.time_for(100), None);
        rate.look(Micros(0), true);
        rate.look(Micros(5_000_000), true);
        assert_eq!(rate.time_for(100), None);
        assert_eq!(rate.time_for(0), Some(Micros(0)));
    }

    #[test]
    fn the_rate_is_tokens_over_the_time_in_which_somebody_waited() {
        let mut rate = ServiceRate::default();
        rate.look(Micros(0), true);
        rate.served(500);
        rate.look(Micros(1_000_000), false);
        rate.look(Micros(9_000_000), true); // eight idle seconds do not count
        assert_eq!(rate.time_for(1000), Some(Micros(2_000_000)));
    }

    #[test]
    fn a_request_that_never_waited_says_nothing_of_the_queue() {
        let mut rate = ServiceRate::default();
        rate.look(Micros(0), true);
        rate.served(500);
        rate.look(Micros(1_000_000), false);
        rate.served(100_000);
        assert_eq!(rate.time_for(500), Some(Micros(1_000_000)));
    }

    #[test]
    fn old_days_are_forgotten() {
        let mut rate = ServiceRate::default();
        rate.look(Micros(0), true);
        for second in 1..=60 {
            rate.served(1000);
            rate.look(Micros(second * 1_000_000), true);
        }
        for second in 61..=120 {
            rate.served(100);
            rate.look(Micros(second * 1_000_000), true);
        }
        let predicted = rate.time_for(1000).expect("known").0;
        assert!((9_000_000..=10_000_000).contains(&predicted), "{predicted}");
    }
}
