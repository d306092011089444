//! What is kept of answers: enough for every figure, and no more as answers get longer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::answer::{AskError, Whole};
use crate::goodput::Limits;
use crate::timeline::Timeline;

/// Gathers the outcomes of a run.
pub(crate) struct Tally {
    limits: Limits,
    /// Microseconds between tokens.
    pub itl: Histogram<u64>,
    /// Microseconds, of whole answers.
    pub ttft: Histogram<u64>,
    pub e2e: Histogram<u64>,
    /// Microseconds per token after the first, of whole answers.
    pub tpot: Histogram<u64>,
    /// Microseconds by which requests of an open loop were sent later than they were due.
    pub late: Histogram<u64>,
    pub whole: u64,
    /// Of the whole ones, those with fewer tokens than asked, and those with more.
    pub short: u64,
    pub long: u64,
    /// Of the whole ones, those that kept every limit, and their tokens.
    pub good: u64,
    pub good_tokens: u64,
    /// Asked of the whole ones.
    pub asked: u64,
    pub tokens: u64,
    pub prompt_tokens: u64,
    /// Reads of the connection that brought tokens.
    pub reads: u64,
    /// Different causes, so many at most; the rest counts under [`OTHERS`].
    pub failures: HashMap<String, u64>,
    /// The same by kind.
    pub kinds: HashMap<String, u64>,
    pub first_failure: Option<String>,
    pub timeline: Timeline,
}

const MAX_CAUSES: usize = 32;
const OTHERS: &str = "other failures";

/// An answer that has come to its end, with what is known of it besides.
pub(crate) struct Ended<'a> {
    pub whole: Whole,
    pub sent: Instant,
    /// Microseconds between its tokens.
    pub gaps: &'a [u32],
    pub reads: u64,
    pub asked: u32,
}

impl Tally {
    pub fn new(limits: Limits, began: Instant) -> Self {
        Self {
            limits,
            itl: times(),
            ttft: times(),
            e2e: times(),
            tpot: times(),
            late: times(),
            whole: 0,
            short: 0,
            long: 0,
            good: 0,
            good_tokens: 0,
            asked: 0,
            tokens: 0,
            prompt_tokens: 0,
            reads: 0,
            failures: HashMap::new(),
            kinds: HashMap::new(),
            first_failure: None,
            timeline: Timeline::new(began),
        }
    }

    pub fn late(&mut self, by: Duration) {
        self.late.saturating_record(micros(by));
    }

    pub fn whole(&mut self, ended: &Ended<'_>) {
        let Ended { whole, sent, gaps, reads, asked } = ended;
        let asked = u64::from(*asked);
        self.whole += 1;
        self.short += u64::from(whole.tokens < asked);
        self.long += u64::from(whole.tokens > asked);
        self.asked += asked;
        self.tokens += whole.tokens;
        self.prompt_tokens += whole.prompt_tokens.unwrap_or(0);
        self.reads += reads;
        if self.limits.keeps(whole) {
            self.good += 1;
            self.good_tokens += whole.tokens;
        }
        gaps.iter().for_each(|&gap| self.itl.saturating_record(u64::from(gap)));
        self.ttft.saturating_record(micros(whole.ttft));
        self.e2e.saturating_record(micros(whole.e2e));
        if let Some(time) = whole.per_token() {
            self.tpot.saturating_record(micros(time));
        }
        self.draw(whole, *sent, gaps);
    }

    pub fn failed(&mut self, error: &AskError, sent: Instant, now: Instant) {
        let mut cause = error.to_string();
        self.first_failure.get_or_insert_with(|| cause.clone());
        *self.kinds.entry(error.kind()).or_default() += 1;
        if self.failures.len() >= MAX_CAUSES && !self.failures.contains_key(&cause) {
            cause = OTHERS.to_owned();
        }
        *self.failures.entry(cause).or_default() += 1;
        self.timeline.request(sent, now);
    }

    /// Where an event has several tokens, each event counts as so many.
    fn draw(&mut self, whole: &Whole, sent: Instant, gaps: &[u32]) {
        self.timeline.request(sent, sent + whole.e2e);
        let each = whole.tokens as f64 / (gaps.len() + 1) as f64;
        let mut at = sent + whole.ttft;
        let mut together = each;
        for &gap in gaps {
            if gap > 0 {
                self.timeline.tokens(at, together);
                at += Duration::from_micros(u64::from(gap));
                together = 0.0;
            }
            together += each;
        }
        self.timeline.tokens(at, together);
    }
}

/// From a microsecond to an hour, to three digits.
fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are apart and the digits few")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_sentence_and_by_kind_and_the_first_is_kept() {
        let now = Instant::now();
        let mut tally = Tally::new(Limits::default(), now);
        let status = |status, body: &str| AskError::Status { status, body: body.into() };
        for error in [status(429, "busy"), status(429, "full"), AskError::Empty, status(429, "busy")] {
            tally.failed(&error, now, now);
        }
        assert_eq!((tally.failures["status 429: busy"], tally.failures["status 429: full"]), (2, 1));
        assert_eq!((tally.kinds["status 429"], tally.kinds["no token"]), (3, 1));
        assert_eq!(tally.first_failure.as_deref(), Some("status 429: busy"));
    }

    #[test]
    fn answers_of_another_length_than_asked_are_short_or_long() {
        let sent = Instant::now();
        let mut tally = Tally::new(Limits::default(), sent);
        for tokens in [1, 2, 2, 3] {
            let ms = Duration::from_millis;
            let whole = Whole { ttft: ms(1), e2e: ms(2), tokens, prompt_tokens: None };
            tally.whole(&Ended { whole, sent, gaps: &[], reads: 1, asked: 2 });
        }
        assert_eq!((tally.short, tally.long, tally.asked, tally.tokens), (1, 1, 8, 8));
    }
}
