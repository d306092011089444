//! Workloads that are made up: typical traffic, and traffic that schedulers have stumbled over.

use headrace_scheduler::{Micros, Tokens};

use crate::random::Random;
use crate::workload::{Arrival, Prefix, Workload};

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Half 50 prompt tokens and 20 of answer, half 500 and 200; Poisson arrivals.
    Seed,
    /// Lengths as in the ShareGPT conversations (means 161 and 338 tokens in the paper on vLLM); every client allows
    /// 1,024 tokens, as most do who never think of it; Poisson arrivals.
    ShareGpt,
    /// The mixture of `Seed`, but in bursts of 1 to 63 at once.
    Bursty,
    /// Eight system prompts of 512 to 2,048 tokens, the first of them by far the most wanted, before short questions.
    Prefix,
    /// Chats of 50 prompt tokens (tenant `chat`), and in their middle one prompt of 30,000 (tenant `adversary`).
    Adversary,
}

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PresetKnobs {
    pub requests: u32,
    /// Requests per second on average; more than 0. Infinite: all at once.
    pub rate: f64,
    pub seed: u64,
    /// Clients allow this many times the tokens that their answers turn out to have; `None`: what the preset says.
    pub max_new_ratio: Option<f64>,
}

impl Default for PresetKnobs {
    fn default() -> Self {
        Self { requests: 200, rate: 8.0, seed: 1, max_new_ratio: None }
    }
}

const SHARE_GPT_MAX_NEW: u32 = 1024;
const SYSTEM_PROMPTS: u32 = 8;
const LARGEST_BURST: u32 = 63;
const LONG_PROMPT: Tokens = Tokens(30_000);

impl Preset {
    /// Deterministic: equal knobs give equal workloads. Lengths do not depend on the rate, so that a sweep of rates
    /// compares like with like.
    pub fn workload(self, knobs: PresetKnobs) -> Workload {
        let mut lengths = Random::new(knobs.seed);
        let mut gaps = Random::new(knobs.seed.wrapping_add(0x5EED));
        let mut seconds = 0.0;
        let mut left_of_burst = 0_u32;
        let arrivals = (0..knobs.requests).map(|number| {
            if left_of_burst == 0 {
                left_of_burst = if self == Self::Bursty { gaps.between(1, LARGEST_BURST) } else { 1 };
                seconds += gaps.exponential(f64::from(left_of_burst) / knobs.rate);
            }
            left_of_burst -= 1;
            let at = Micros((seconds * 1e6).round() as u64);
            let mut arrival = self.arrival(at, number == knobs.requests / 2, &mut lengths);
            if let Some(ratio) = knobs.max_new_ratio {
                arrival.max_new = scaled(arrival.output, ratio);
            }
            arrival
        });
        Workload::new(arrivals.collect())
    }

    fn arrival(self, at: Micros, in_the_middle: bool, random: &mut Random) -> Arrival {
        match self {
            Self::Seed | Self::Bursty => mixture(at, random),
            Self::ShareGpt => share_gpt(at, random),
            Self::Prefix => question(at, random),
            Self::Adversary if in_the_middle => {
                Arrival { tenant: "adversary".to_owned(), ..Arrival::new(at, LONG_PROMPT, Tokens(20)) }
            }
            Self::Adversary => {
                Arrival { tenant: "chat".to_owned(), ..Arrival::new(at, Tokens(50), Tokens(random.between(50, 150))) }
            }
        }
    }
}

/// No less than the answer: a client who allows less would get less.
fn scaled(output: Tokens, ratio: f64) -> Tokens {
    Tokens((f64::from(output.0) * ratio).ceil() as u32).max(output)
}

fn mixture(at: Micros, random: &mut Random) -> Arrival {
    match random.between(0, 1) {
        0 => Arrival::new(at, Tokens(50), Tokens(20)),
        _ => Arrival::new(at, Tokens(500), Tokens(200)),
    }
}

fn share_gpt(at: Micros, random: &mut Random) -> Arrival {
    let prompt = (random.log_normal(70.0, 1.3) as u32).clamp(4, 2048);
    let output = (random.log_normal(260.0, 1.0) as u32).clamp(2, SHARE_GPT_MAX_NEW);
    Arrival { max_new: Tokens(SHARE_GPT_MAX_NEW), ..Arrival::new(at, Tokens(prompt), Tokens(output)) }
}

fn question(at: Micros, random: &mut Random) -> Arrival {
    // Each system prompt is wanted half as often as the one before it.
    let which = random.bits().trailing_zeros().min(SYSTEM_PROMPTS - 1);
    let shared = 512 + which * (2048 - 512) / (SYSTEM_PROMPTS - 1);
    let prompt = Tokens(shared + random.between(20, 200));
    let prefix = Some(Prefix { name: format!("system-{which}"), tokens: Tokens(shared) });
    Arrival { prefix, ..Arrival::new(at, prompt, Tokens(random.between(20, 200))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Preset; 5] = [Preset::Seed, Preset::ShareGpt, Preset::Bursty, Preset::Prefix, Preset::Adversary];

    fn mean(workload: &Workload, of: impl Fn(&Arrival) -> Tokens) -> f64 {
        let sum: u64 = workload.arrivals().iter().map(|arrival| u64::from(of(arrival).0)).sum();
        sum as f64 / workload.arrivals().len() as f64
    }

    #[test]
    fn the_same_seed_gives_the_same_workload_and_another_one_another() {
        for preset in ALL {
            let of = |seed| preset.workload(PresetKnobs { seed, ..PresetKnobs::default() });
            assert_eq!(of(7), of(7), "{preset:?}");
            assert_ne!(of(7), of(8), "{preset:?}");
        }
    }

    #[test]
    fn requests_come_at_the_asked_rate() {
        for preset in ALL {
            let workload = preset.workload(PresetKnobs { requests: 8_000, rate: 20.0, ..PresetKnobs::default() });
            let last = workload.arrivals().last().expect("8,000 requests").at;
            assert!((340_000_000..=460_000_000).contains(&last.0), "{preset:?}: the last one at {last} µs");
        }
    }

    #[test]
    fn an_infinite_rate_is_one_burst() {
        let workload = Preset::Seed.workload(PresetKnobs { rate: f64::INFINITY, ..PresetKnobs::default() });
        assert!(workload.arrivals().iter().all(|arrival| arrival.at == Micros(0)));
    }

    #[test]
    fn conversations_are_as_long_as_published() {
        let workload = Preset::ShareGpt.workload(PresetKnobs { requests: 20_000, ..PresetKnobs::default() });
        let (prompt, output) = (mean(&workload, |a| a.prompt), mean(&workload, |a| a.output));
        assert!((145.0..=177.0).contains(&prompt), "{prompt}");
        assert!((304.0..=372.0).contains(&output), "{output}");
    }

    #[test]
    fn a_ratio_sets_what_clients_allow() {
        let knobs = PresetKnobs { max_new_ratio: Some(4.0), ..PresetKnobs::default() };
        let workload = Preset::ShareGpt.workload(knobs);
        assert!(workload.arrivals().iter().all(|arrival| arrival.max_new.0 == 4 * arrival.output.0));
    }

    #[test]
    fn one_long_prompt_is_in_the_middle_of_the_chats() {
        let workload = Preset::Adversary.workload(PresetKnobs::default());
        let long: Vec<usize> = (0..200).filter(|&i| workload.arrivals()[i].prompt == LONG_PROMPT).collect();
        assert_eq!(long, [100]);
    }
}
