//! How many answers are longer than that: the product-limit estimate of Kaplan and Meier, in integers.
//!
//! Short answers end first, so what has ended says too little at any moment. Those that run count too: an answer that has
//! passed a length says that it is longer.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::units::Tokens;

/// A whole `max_new_tokens`; lengths are counted in parts of it.
const WHOLE: u64 = 1 << 20;
/// Buckets of a histogram: four to a doubling, up to `WHOLE` and a little more.
const BUCKETS: usize = 84;
/// Certainty, in the fixed-point numbers of probabilities.
pub(crate) const SURE: u64 = 1 << 20;
/// Ended answers that make a histogram worth asking: the first to end are the short ones, and say little of the others.
pub(crate) const ENOUGH: u32 = 48;
const ENOUGH_FOR_A_MEAN: u32 = 8;
/// At this many samples all counts are halved, so that a change of habits is learned.
const FULL: u32 = 512;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Histogram {
    /// Answers that ended in each bucket, and that went on beyond it.
    buckets: Vec<(u32, u32)>,
    ended: u32,
    /// The share of answers that come to the begin of each bucket; empty: to be made anew.
    #[serde(skip)]
    come_to: Vec<u32>,
}

/// What is expected of one answer from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook<'a> {
    /// It certainly ends when it has got so many more.
    pub left: Tokens,
    known: Option<Known<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    come_to: &'a [u32],
    done: u64,
    /// Parts of a token.
    token: u64,
    /// The share of answers that came as far as this one is, if any did.
    came: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![(0, 0); BUCKETS], ended: 0, come_to: Vec::new() }
    }
}

impl Histogram {
    /// An answer ended in this bucket.
    pub fn end(&mut self, bucket: u8) {
        if self.ended >= FULL {
            self.buckets.iter_mut().for_each(|(ended, passed)| (*ended, *passed) = (*ended / 2, *passed / 2));
            self.ended = self.buckets.iter().map(|(ended, _)| ended).sum();
        }
        self.buckets[bucket as usize].0 += 1;
        self.ended += 1;
        self.come_to.clear();
    }

    /// An answer went on beyond these buckets.
    pub fn pass(&mut self, buckets: Range<u8>) {
        let buckets = buckets.start as usize..buckets.end as usize;
        self.buckets[buckets].iter_mut().for_each(|(_, passed)| *passed += 1);
        self.come_to.clear();
    }

    pub fn is_worth_asking(&self) -> bool {
        self.ended >= ENOUGH
    }

    /// Enough for a mean, which is right only on average.
    pub fn says_something(&self) -> bool {
        self.ended >= ENOUGH_FOR_A_MEAN
    }

    /// Tokens that an answer with `generated` of at most `max_new` gets on average.
    pub fn expected(&mut self, max_new: Tokens, generated: Tokens) -> Tokens {
        let come_to = self.come_to();
        let done = part(generated, max_new);
        let came = share_at(come_to, done);
        if came == 0 {
            return left(max_new, generated);
        }
        let buckets = bucket(done)..bucket(WHOLE);
        // Shares fall in straight lines over a bucket, so each is as long as its middle.
        let area: u64 = buckets
            .map(|bucket| {
                let (from, to) = (begin(bucket).max(done), begin(bucket + 1));
                (to - from) * (share_at(come_to, from) + u64::from(come_to[bucket + 1])) / 2
            })
            .sum();
        Tokens((area / came * u64::from(max_new.0)).div_ceil(WHOLE) as u32)
    }

    fn come_to(&mut self) -> &[u32] {
        if self.come_to.is_empty() {
            self.come_to.extend(survivors(&self.buckets));
        }
        &self.come_to
    }

    /// Of an answer that has `generated` tokens of at most `max_new`.
    pub fn outlook(&mut self, max_new: Tokens, generated: Tokens) -> Outlook<'_> {
        let (come_to, done) = (self.come_to(), part(generated, max_new));
        let known = Known { come_to, done, token: WHOLE / u64::from(max_new.0.max(1)), came: share_at(come_to, done) };
        Outlook { left: left(max_new, generated), known: Some(known) }
    }
}

impl Outlook<'_> {
    /// Where little is known: it ends when it has got so many more, neither sooner nor later.
    pub fn certain(left: Tokens) -> Self {
        Self { left: left.max(Tokens(1)), known: None }
    }

    /// How likely it is that the answer still runs when it would have got `more` tokens; at most `SURE`.
    pub fn runs(&self, more: Tokens) -> u64 {
        match self.known {
            _ if more >= self.left => 0,
            // Nobody came this far: whoever does is expected to go on.
            Some(known) if known.came > 0 => {
                let then = share_at(known.come_to, known.done + u64::from(more.0) * known.token);
                (then * SURE / known.came).min(SURE)
            }
            _ => SURE,
        }
    }
}

/// Tokens that are still allowed; at least one.
pub(crate) fn left(max_new: Tokens, generated: Tokens) -> Tokens {
    max_new.saturating_sub(generated).max(Tokens(1))
}

/// The bucket of a length.
pub(crate) fn bucket_of(length: Tokens, max_new: Tokens) -> u8 {
    bucket(part(length, max_new)) as u8
}

/// The share of answers that come to the begin of each bucket, and to the end of the last.
fn survivors(buckets: &[(u32, u32)]) -> impl Iterator<Item = u32> + '_ {
    let ends = buckets.iter().scan(SURE, |survive, &(ended, passed)| {
        let (ended, asked) = (u64::from(ended), u64::from(ended) + u64::from(passed));
        *survive -= (*survive * ended).checked_div(asked).unwrap_or(0);
        Some(*survive as u32)
    });
    std::iter::once(SURE as u32).chain(ends)
}

/// The share of answers that come to this length; those that end in a bucket do so evenly over it.
fn share_at(come_to: &[u32], part: u64) -> u64 {
    let bucket = bucket(part);
    let (from, to) = (u64::from(come_to[bucket]), u64::from(come_to[bucket + 1]));
    // A bucket is a quarter of a power of two wide; the first ones hold one number each.
    let width = (bucket as u32 / 4).saturating_sub(2);
    from - (((from - to) * part.saturating_sub(begin(bucket))) >> width).min(from - to)
}

/// A length in parts of `max_new`, rounded up.
fn part(length: Tokens, max_new: Tokens) -> u64 {
    (u64::from(length.0) * WHOLE).div_ceil(u64::from(max_new.0.max(1)))
}

/// The least length of a bucket.
fn begin(bucket: usize) -> u64 {
    let (power, quarter) = (bucket as u32 / 4, bucket as u64 % 4);
    ((4 + quarter) << power).div_ceil(4)
}

/// Four buckets to a doubling: 1, 2, 3, 4, 5, 6, 7, 8–9, 10–11, …
fn bucket(part: u64) -> usize {
    let part = part.max(1);
    let power = part.ilog2();
    let quarter = if power >= 2 { (part >> (power - 2)) & 3 } else { (part << (2 - power)) & 3 };
    (power as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taught(max_new: u32, lengths: impl IntoIterator<Item = u32>) -> Histogram {
        let mut histogram = Histogram::default();
        for length in lengths {
            let bucket = bucket_of(Tokens(length), Tokens(max_new));
            histogram.pass(0..bucket);
            histogram.end(bucket);
        }
        histogram
    }

    /// How likely an answer with `generated` tokens goes on for `more`, in percent.
    fn percent(histogram: &mut Histogram, generated: u32, more: u32) -> u64 {
        histogram.outlook(Tokens(1024), Tokens(generated)).runs(Tokens(more)) * 100 / SURE
    }

    #[test]
    fn buckets_grow_with_length_and_have_four_to_a_doubling() {
        assert!((1..100_000).all(|part| bucket(part) <= bucket(part + 1)));
        assert!((4..20_u32).all(|power| bucket(1 << (power + 1)) == bucket(1 << power) + 4));
        assert!(bucket(WHOLE) + 1 < BUCKETS);
    }

    #[test]
    fn a_bucket_begins_where_lengths_fall_into_it() {
        for length in 1..100_000 {
            let bucket = bucket(length);
            assert!(begin(bucket) <= length && length < begin(bucket + 1), "{length} in bucket {bucket}");
        }
    }

    #[test]
    fn the_share_that_runs_on_is_that_of_longer_answers() {
        let mut histogram = taught(1024, [20; 60].into_iter().chain([800; 20]));
        assert_eq!(percent(&mut histogram, 0, 10), 100);
        assert!(percent(&mut histogram, 0, 30).abs_diff(25) <= 1);
        assert!(percent(&mut histogram, 0, 700).abs_diff(25) <= 1);
        assert!(percent(&mut histogram, 0, 1000) <= 1);
    }

    #[test]
    fn an_answer_that_has_passed_the_short_ones_is_one_of_the_long() {
        let mut histogram = taught(1024, [20; 60].into_iter().chain([800; 20]));
        assert!(percent(&mut histogram, 100, 600) >= 99);
        assert!(percent(&mut histogram, 100, 850) <= 1);
    }

    #[test]
    fn answers_that_still_run_say_that_they_are_longer_than_those_that_ended() {
        let mut histogram = taught(1024, [20; 50]);
        assert_eq!(percent(&mut histogram, 0, 100), 0);
        (0..50).for_each(|_| histogram.pass(0..bucket_of(Tokens(500), Tokens(1024))));
        assert!(percent(&mut histogram, 0, 100).abs_diff(50) <= 1);
    }

    #[test]
    fn an_answer_longer_than_any_before_is_expected_to_go_to_its_limit() {
        let mut histogram = taught(1024, [20; 60]);
        assert_eq!(percent(&mut histogram, 824, 199), 100);
        assert_eq!(percent(&mut histogram, 824, 200), 0);
    }

    #[test]
    fn the_mean_is_that_of_the_answers_that_came_as_far() {
        let mut histogram = taught(1024, [20; 60].into_iter().chain([800; 20]));
        let mut mean = |generated| histogram.expected(Tokens(1024), Tokens(generated)).0;
        // A quarter of the answers are forty times as long; lengths fall evenly over their buckets.
        assert!(mean(0).abs_diff((3 * 20 + 800) / 4) <= 15, "{}", mean(0));
        assert!(mean(100).abs_diff(700) <= 70, "{}", mean(100));
        assert_eq!(mean(1000), 24, "nobody came so far: to its limit");
    }

    #[test]
    fn ends_fall_evenly_over_a_bucket() {
        let mut histogram = taught(1024, [300; 60]); // 256 to 319
        let shares: Vec<u64> = [256, 272, 288, 304].map(|more| percent(&mut histogram, 0, more)).to_vec();
        assert!(
            shares.iter().zip([100, 75, 50, 25]).all(|(share, expected)| share.abs_diff(expected) <= 1),
            "{shares:?}"
        );
    }

    #[test]
    fn habits_change() {
        let mut histogram = taught(1024, [500; 600].into_iter().chain([20; 3000]));
        assert!(percent(&mut histogram, 0, 40) <= 2);
    }
}
