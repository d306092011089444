//! What went on when: requests under way and tokens, in buckets of time that grow with the run.

use std::time::Instant;

/// Counts in buckets of equal width. When time runs beyond the last one, two and two become one: what is kept stays
/// small, and at least [`MOST`] / 2 buckets tell of a long run.
#[derive(Debug)]
pub(crate) struct Timeline {
    began: Instant,
    width_s: f64,
    buckets: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    tokens: f64,
    /// Request-seconds within it of requests that began or ended in it.
    partial: f64,
    /// Requests that are under way during all of it, less those during all of the one before.
    step: f64,
}

/// A bucket's middle, and what went on in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    pub at_s: f64,
    /// On average.
    pub running: f64,
    pub tokens_per_s: f64,
}

const MOST: usize = 1024;
const NARROWEST_S: f64 = 0.01;

impl Timeline {
    pub fn new(began: Instant) -> Self {
        Self { began, width_s: NARROWEST_S, buckets: Vec::new() }
    }

    /// A request from when it was sent until it ended.
    pub fn request(&mut self, sent: Instant, ended: Instant) {
        let (from, to) = (self.seconds(sent), self.seconds(ended));
        // In this order: making room for the last may widen all buckets.
        let last = self.bucket(to);
        let first = self.bucket(from);
        let width = self.width_s;
        if first == last {
            self.buckets[first].partial += to - from;
            return;
        }
        self.buckets[first].partial += (first + 1) as f64 * width - from;
        self.buckets[last].partial += to - last as f64 * width;
        self.buckets[first + 1].step += 1.0;
        self.buckets[last].step -= 1.0;
    }

    /// Tokens, or a share of them, that came at this moment.
    pub fn tokens(&mut self, at: Instant, tokens: f64) {
        let bucket = self.bucket(self.seconds(at));
        self.buckets[bucket].tokens += tokens;
    }

    /// At most `most` buckets, which is at least 1, in order; several of the kept ones make one.
    pub fn moments(&self, most: usize) -> Vec<Moment> {
        let each = self.buckets.len().div_ceil(most).max(1);
        let mut whole = 0.0;
        let mut from_s = 0.0;
        let moments = self.buckets.chunks(each).map(|buckets| {
            let width = self.width_s * buckets.len() as f64;
            let at_s = from_s + width / 2.0;
            from_s += width;
            let (mut tokens, mut under_way) = (0.0, 0.0);
            for bucket in buckets {
                whole += bucket.step;
                tokens += bucket.tokens;
                under_way += bucket.partial + whole * self.width_s;
            }
            Moment { at_s, running: under_way / width, tokens_per_s: tokens / width }
        });
        moments.collect()
    }

    fn seconds(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.began).as_secs_f64()
    }

    /// The bucket of a moment, which is there afterwards.
    fn bucket(&mut self, seconds: f64) -> usize {
        while seconds >= self.width_s * MOST as f64 {
            self.halve();
        }
        let bucket = (seconds / self.width_s) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, Bucket::default());
        }
        bucket
    }

    fn halve(&mut self) {
        let mut whole = 0.0;
        let mut before = 0.0;
        let pairs = self.buckets.chunks(2).map(|pair| {
            let mut bucket = Bucket::default();
            let mut both = f64::INFINITY;
            for one in pair {
                whole += one.step;
                bucket.tokens += one.tokens;
                bucket.partial += one.partial + whole * self.width_s;
                both = both.min(whole);
            }
            // Those of both halves go on to be under way during all of it.
            bucket.partial -= both * self.width_s * 2.0;
            bucket.step = both - before;
            before = both;
            bucket
        });
        self.buckets = pairs.collect();
        self.width_s *= 2.0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-6 * (1.0 + one.abs())
    }

    #[test]
    fn a_request_is_under_way_in_the_buckets_between_its_ends_and_in_a_part_of_those() {
        let began = Instant::now();
        let ms = |ms| began + Duration::from_millis(ms);
        let mut timeline = Timeline::new(began);
        timeline.request(ms(5), ms(38));
        timeline.request(ms(12), ms(14));
        timeline.tokens(ms(38), 2.0);
        let running: Vec<f64> = timeline.moments(MOST).iter().map(|moment| moment.running).collect();
        let expected = [0.5, 1.2, 1.0, 0.8];
        assert!(running.len() == 4 && running.iter().zip(expected).all(|(&a, b)| near(a, b)), "{running:?}");
        assert!(near(timeline.moments(MOST)[3].tokens_per_s, 200.0));
        let coarse = timeline.moments(2);
        assert!(near(coarse[0].running, 0.85) && near(coarse[1].running, 0.9) && near(coarse[1].at_s, 0.03));
    }

    proptest! {
        /// However long the run, and whatever order requests end in: request-seconds and tokens are all there.
        #[test]
        fn nothing_is_lost_when_buckets_grow(spans in prop::collection::vec((0u64..60_000, 0u64..60_000), 1..40)) {
            let began = Instant::now();
            let ms = |ms| began + Duration::from_millis(ms);
            let mut timeline = Timeline::new(began);
            for &(from, length) in &spans {
                timeline.request(ms(from), ms(from + length));
                timeline.tokens(ms(from), 3.0);
            }
            let moments = timeline.moments(MOST);
            let width = moments[0].at_s * 2.0;
            let sum = |of: fn(&Moment) -> f64| moments.iter().map(of).sum::<f64>() * width;
            let seconds = spans.iter().map(|&(_, length)| length as f64 / 1e3).sum::<f64>();
            prop_assert!(near(sum(|moment| moment.running), seconds), "{} {seconds}", sum(|moment| moment.running));
            prop_assert!(near(sum(|moment| moment.tokens_per_s), spans.len() as f64 * 3.0));
            prop_assert!(moments.iter().all(|moment| moment.running > -1e-6));
        }
    }
}
