//! The gate that protects those who decode: Text Generation Inference's `waiting_served_ratio` and `max_waiting_tokens`.

use serde::{Deserialize, Serialize};

use crate::config::Config;

/// While rows decode, a newcomer's prompt costs each of them time: let newcomers in only when enough of them wait, or
/// when they waited long enough.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Gate {
    ratio_permille: u32,
    max_decode_steps: u32,
    /// Steps with decode rows since the last admission.
    decode_steps: u32,
}

impl Gate {
    pub fn new(config: &Config) -> Self {
        Self {
            ratio_permille: config.waiting_served_ratio_permille,
            max_decode_steps: config.max_waiting_tokens,
            decode_steps: 0,
        }
    }

    pub fn is_open(&self, waiting: usize, running: usize, decoding: usize) -> bool {
        let enough_wait = waiting as u64 * 1000 >= u64::from(self.ratio_permille) * running as u64;
        decoding == 0 || enough_wait || self.decode_steps >= self.max_decode_steps
    }

    /// Who comes in now has waited long enough, however many wait: asked first, as Text Generation Inference does. With a
    /// ratio of 0 nobody waits for the gate.
    pub fn is_overdue(&self, decoding: usize) -> bool {
        decoding > 0 && self.ratio_permille > 0 && self.decode_steps >= self.max_decode_steps
    }

    /// A step was planned.
    pub fn count(&mut self, decodes: bool, admits: bool) {
        match (admits, decodes) {
            (true, _) => self.decode_steps = 0,
            (false, true) => self.decode_steps = self.decode_steps.saturating_add(1),
            (false, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(ratio_permille: u32, max_decode_steps: u32) -> Gate {
        Gate { ratio_permille, max_decode_steps, decode_steps: 0 }
    }
    #[test]
    fn the_gate_is_open_when_nobody_decodes() {
        assert!(gate(u32::MAX, u32::MAX).is_open(1, 9, 0));
    }
    #[test]
    fn the_gate_opens_when_enough_wait_for_those_who_run() {
        assert!(!gate(300, 20).is_open(2, 10, 10));
        assert!(gate(300, 20).is_open(3, 10, 10));
    }
    #[test]
    fn the_gate_opens_after_enough_decode_steps_and_an_admission_starts_the_count_anew() {
        let mut gate = gate(1000, 2);
        gate.count(true, false);
        assert!(!gate.is_open(1, 10, 10));
        gate.count(true, false);
        assert!(gate.is_open(1, 10, 10));
        gate.count(true, true);
        assert!(!gate.is_open(1, 10, 10));
    }
    #[test]
    fn a_step_without_decode_rows_does_not_count_as_waiting() {
        let mut gate = gate(1000, 1);
        gate.count(false, false);
        assert!(!gate.is_open(1, 10, 10));
    }
    #[test]
    fn newcomers_are_overdue_after_enough_steps_however_many_wait() {
        let mut gate = gate(1000, 1);
        assert!(!gate.is_overdue(10));
        gate.count(true, false);
        assert!(gate.is_overdue(10));
        assert!(!gate.is_overdue(0), "nobody decodes: the gate holds nobody back");
        gate.ratio_permille = 0;
        assert!(!gate.is_overdue(10), "everybody enters at once");
    }
    #[test]
    fn with_both_at_zero_the_gate_is_always_open() {
        assert!(gate(0, 0).is_open(1, 256, 256));
    }
}
