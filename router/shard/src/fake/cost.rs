//! How long a pretend step takes.

use std::time::Duration;

/// A step costs `step + tokens × token + rows × row`, where tokens are those of the forward pass (a decode row has one)
/// and rows are chunks and decodes. Steps follow one another as on a device: the next one starts when the last ended.
///
/// Waiting uses tokio's clock: with paused time a test costs nothing; with real time one wait is exact to about a
/// millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Of every step.
    pub step: Duration,
    /// Of every token of the forward pass.
    pub token: Duration,
    /// Of every row.
    pub row: Duration,
}

impl CostModel {
    /// Every step takes no time.
    pub const FREE: Self = Self { step: Duration::ZERO, token: Duration::ZERO, row: Duration::ZERO };

    /// A step's time.
    pub fn of(&self, tokens: u32, rows: u32) -> Duration {
        let tokens = self.token.saturating_mul(tokens);
        self.step.saturating_add(tokens).saturating_add(self.row.saturating_mul(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_costs_its_constant_and_its_tokens_and_its_rows() {
        let cost = CostModel {
            step: Duration::from_micros(1000),
            token: Duration::from_micros(10),
            row: Duration::from_micros(3),
        };
        assert_eq!(cost.of(5, 2), Duration::from_micros(1056));
    }
}
