//! What is kept of answers: enough for every figure, and no more as answers get longer.

use std::collections::HashMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::answer::{AskError, Whole};

/// Gathers the outcomes of a run.
pub(crate) struct Tally {
    /// Microseconds between tokens.
    pub itl: Histogram<u64>,
    /// Microseconds, of whole answers.
    pub ttft: Histogram<u64>,
    pub e2e: Histogram<u64>,
    /// Microseconds per token after the first, of whole answers.
    pub tpot: Histogram<u64>,
    pub whole: u64,
    /// Of the whole ones, those with fewer tokens than asked.
    pub short: u64,
    pub tokens: u64,
    pub prompt_tokens: u64,
    /// Reads of the connection that brought tokens.
    pub reads: u64,
    /// Different causes, so many at most; the rest counts under [`OTHERS`].
    pub failures: HashMap<String, u64>,
}

const MAX_CAUSES: usize = 32;
const OTHERS: &str = "other failures";

impl Tally {
    pub fn new() -> Self {
        Self {
            itl: times(),
            ttft: times(),
            e2e: times(),
            tpot: times(),
            whole: 0,
            short: 0,
            tokens: 0,
            prompt_tokens: 0,
            reads: 0,
            failures: HashMap::new(),
        }
    }

    /// An answer to a request for `asked` tokens, with the microseconds between its tokens.
    pub fn whole(&mut self, whole: &Whole, gaps: &[u32], reads: u64, asked: u32) {
        self.whole += 1;
        self.short += u64::from(whole.tokens < u64::from(asked));
        self.tokens += whole.tokens;
        self.prompt_tokens += whole.prompt_tokens.unwrap_or(0);
        self.reads += reads;
        gaps.iter().for_each(|&gap| self.itl.saturating_record(u64::from(gap)));
        self.ttft.saturating_record(micros(whole.ttft));
        self.e2e.saturating_record(micros(whole.e2e));
        if let Some(after_first) = whole.tokens.checked_sub(1).filter(|&count| count > 0) {
            self.tpot.saturating_record(micros(whole.e2e - whole.ttft) / after_first);
        }
    }

    pub fn failed(&mut self, error: &AskError) {
        let mut cause = error.to_string();
        if self.failures.len() >= MAX_CAUSES && !self.failures.contains_key(&cause) {
            cause = OTHERS.to_owned();
        }
        *self.failures.entry(cause).or_default() += 1;
    }
}

/// From a microsecond to an hour, to three digits.
fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are apart and the digits few")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
