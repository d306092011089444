//! Goodput: what was answered as fast as somebody asked for.

use std::fmt;

use serde::Serialize;

use crate::answer::Whole;

/// How long a good answer may take. What is not given is not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    /// From the request to the first token.
    pub ttft_ms: Option<f64>,
    /// Between tokens, on average over the answer: what vLLM's `--goodput` calls tpot. An answer of one token has no
    /// such time and keeps the limit.
    pub itl_ms: Option<f64>,
}

/// What of a run was good. A failed request is not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    #[serde(flatten)]
    pub limits: Limits,
    /// Requests whose answers were whole and kept every limit.
    pub requests: u64,
    /// Of all requests that have ended, failed ones too: 0 to 1.
    pub share: f64,
    pub requests_per_s: f64,
    /// Of good answers.
    pub output_tokens_per_s: f64,
}

impl Limits {
    pub fn any(&self) -> bool {
        self.ttft_ms.is_some() || self.itl_ms.is_some()
    }

    pub(crate) fn keeps(&self, whole: &Whole) -> bool {
        let within = |limit: Option<f64>, ms: Option<f64>| limit.zip(ms).is_none_or(|(limit, ms)| ms <= limit);
        let ttft = whole.ttft.as_secs_f64() * 1e3;
        let itl = whole.per_token().map(|time| time.as_secs_f64() * 1e3);
        within(self.ttft_ms, Some(ttft)) && within(self.itl_ms, itl)
    }
}

impl Goodput {
    /// `None` where nothing was asked for. `good` requests with `tokens`, of `ended` ones, in `seconds`.
    pub(crate) fn new(limits: Limits, good: u64, tokens: u64, ended: u64, seconds: f64) -> Option<Self> {
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        limits.any().then(|| Self {
            limits,
            requests: good,
            share: good as f64 / ended.max(1) as f64,
            requests_per_s: per_second(good),
            output_tokens_per_s: per_second(tokens),
        })
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |name, limit: Option<f64>| limit.map(|ms| format!("{name} ≤ {ms} ms"));
        let limits = [limit("TTFT", self.ttft_ms), limit("mean ITL", self.itl_ms)];
        f.write_str(&limits.into_iter().flatten().collect::<Vec<_>>().join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn whole(ttft: u64, e2e: u64, tokens: u64) -> Whole {
        let ms = Duration::from_millis;
        Whole { ttft: ms(ttft), e2e: ms(e2e), tokens, prompt_tokens: None }
    }

    const NONE: Limits = Limits { ttft_ms: None, itl_ms: None };

    #[test]
    fn an_answer_is_good_up_to_its_limits() {
        let ttft = Limits { ttft_ms: Some(100.0), ..NONE };
        assert!(ttft.keeps(&whole(100, 9000, 3)) && !ttft.keeps(&whole(101, 101, 3)));
        // Ten gaps in 200 ms.
        let itl = Limits { itl_ms: Some(20.0), ..NONE };
        assert!(itl.keeps(&whole(5000, 5200, 11)) && !itl.keeps(&whole(0, 201, 11)));
        let both = Limits { ttft_ms: Some(100.0), itl_ms: Some(20.0) };
        assert!(
            both.keeps(&whole(100, 300, 11)) && !both.keeps(&whole(101, 300, 11)) && !both.keeps(&whole(50, 300, 11))
        );
    }

    #[test]
    fn one_token_has_nothing_between_tokens() {
        assert!(Limits { itl_ms: Some(1.0), ..NONE }.keeps(&whole(500, 500, 1)));
    }

    #[test]
    fn failed_requests_count_in_the_share() {
        let limits = Limits { ttft_ms: Some(1.0), ..NONE };
        let goodput = Goodput::new(limits, 3, 60, 12, 2.0).unwrap();
        assert_eq!((goodput.share, goodput.requests_per_s, goodput.output_tokens_per_s), (0.25, 1.5, 30.0));
        assert_eq!(Goodput::new(NONE, 3, 60, 12, 2.0), None);
    }
}
