//! What goes by on the clock while the shard says that it computes: steps also wait for wires, for words about them and
//! for other programs.

use serde::{Deserialize, Serialize};

use crate::units::Micros;

/// Both sums are halved when this much time was counted, so that old days are forgotten.
const WINDOW: Micros = Micros(10_000_000);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// What steps took, as the shard says…
    computed: Micros,
    /// …and the time in which they did.
    passed: Micros,
    /// When the last of them landed, if there was more to do then.
    since: Option<Micros>,
}

impl Pace {
    /// A step that was planned at `planned` landed at `now`. It counts from the landing before it, unless nobody was there
    /// to run then.
    pub fn landed(&mut self, planned: Micros, took: Micros, now: Micros) {
        self.computed += took;
        self.passed += now.saturating_sub(self.since.unwrap_or(planned));
        self.since = Some(now);
        if self.passed > WINDOW {
            (self.computed, self.passed) = (Micros(self.computed.0 / 2), Micros(self.passed.0 / 2));
        }
    }

    /// Nobody is left to run.
    pub fn rests(&mut self) {
        self.since = None;
    }

    /// The time on the clock of what takes so much computing.
    pub fn on_the_clock(&self, computing: Micros) -> Micros {
        if self.computed == Micros::ZERO {
            return computing;
        }
        let time = u128::from(computing.0) * u128::from(self.passed.0) / u128::from(self.computed.0);
        Micros(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Micros = Micros(8_000);

    #[test]
    fn what_was_never_measured_is_taken_as_it_is() {
        assert_eq!(Pace::default().on_the_clock(TOOK), TOOK);
    }

    #[test]
    fn steps_that_follow_each_other_are_counted_from_landing_to_landing() {
        let mut pace = Pace::default();
        // Each is planned before the one before it has landed; ten milliseconds go by for eight of computing.
        (1..=50_u64)
            .for_each(|step| pace.landed(Micros(((step - 1) * 10_000).saturating_sub(1)), TOOK, Micros(step * 10_000)));
        assert_eq!(pace.on_the_clock(Micros(800)), Micros(1000));
    }

    #[test]
    fn time_without_a_step_does_not_count() {
        let mut pace = Pace::default();
        pace.landed(Micros(0), TOOK, Micros(8_000));
        pace.rests();
        pace.landed(Micros(5_000_000), TOOK, Micros(5_008_000));
        assert_eq!(pace.on_the_clock(TOOK), TOOK);
    }

    #[test]
    fn old_days_are_forgotten() {
        let mut pace = Pace::default();
        let mut now = 0;
        for slowness in [3, 1] {
            for _ in 0..10_000 {
                let planned = Micros(now);
                now += slowness * TOOK.0;
                pace.landed(planned, TOOK, Micros(now));
            }
        }
        let time = pace.on_the_clock(Micros(1000)).0;
        assert!((1000..1010).contains(&time), "{time}");
    }
}
