//! Lengths of prompts and answers: mixtures that servers are compared by.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal};

/// How long prompts and answers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All alike.
    Fixed { prompt: u32, output: u32 },
    /// Half 50 prompt and 20 answer tokens, half 500 and 200. Of requests 2k and 2k + 1 one is long: every even number of
    /// requests has as much to do as with any other seed.
    Seed,
    /// 900 tokens that all share, 30 of a request's own, 32 of its answer.
    Prefix,
    /// Log-normal, as the ShareGPT conversations: prompts of 8 to 1,500 tokens (median 99), answers of 4 to 800 (99).
    Sharegpt,
}

/// Tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Of `prompt`, those that all requests begin with.
    pub shared: u32,
    pub prompt: u32,
    pub output: u32,
}

impl Shape {
    /// A conversation's short question.
    pub const SHORT: Self = Self::Fixed { prompt: 50, output: 20 };
    /// Nearly only decoding.
    pub const DECODE: Self = Self::Fixed { prompt: 32, output: 256 };
    /// Nearly only prefilling.
    pub const PREFILL: Self = Self::Fixed { prompt: 1024, output: 4 };

    /// Those of the request at this place of a run, from 0.
    pub fn lengths(self, place: u64, seed: u64) -> Lengths {
        match self {
            Self::Fixed { prompt, output } => Lengths { shared: 0, prompt, output },
            Self::Prefix => Lengths { shared: 900, prompt: 930, output: 32 },
            Self::Seed => {
                let long_is_first: bool = random(place / 2, seed).random();
                if long_is_first == place.is_multiple_of(2) {
                    Lengths { shared: 0, prompt: 500, output: 200 }
                } else {
                    Lengths { shared: 0, prompt: 50, output: 20 }
                }
            }
            Self::Sharegpt => {
                let mut random = random(place, seed);
                let mut draw = |spread, least, most| {
                    let lengths = LogNormal::<f64>::new(4.6, spread).expect("a spread above 0 and finite");
                    lengths.sample(&mut random).clamp(least, most) as u32
                };
                Lengths { shared: 0, prompt: draw(1.1, 8.0, 1500.0), output: draw(1.0, 4.0, 800.0) }
            }
        }
    }
}

/// Lengths are drawn apart from prompts: they stay when what prompts are made of changes.
fn random(place: u64, seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed.rotate_left(17) ^ place.rotate_left(40) ^ LENGTHS)
}

const LENGTHS: u64 = 0x4c45_4e47_5448;

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shape: Shape, requests: u64, seed: u64) -> Vec<Lengths> {
        (0..requests).map(|place| shape.lengths(place, seed)).collect()
    }

    #[test]
    fn half_of_seed_is_long_whatever_the_seed_and_in_no_fixed_order() {
        for seed in 0..20 {
            let drawn = drawn(Shape::Seed, 48, seed);
            let long = Lengths { shared: 0, prompt: 500, output: 200 };
            let short = Lengths { shared: 0, prompt: 50, output: 20 };
            let count = |wanted| drawn.iter().filter(|&&lengths| lengths == wanted).count();
            assert_eq!((count(long), count(short)), (24, 24));
            let first_of_pairs = drawn.iter().step_by(2).filter(|&&lengths| lengths == long).count();
            assert!((1..24).contains(&first_of_pairs), "{first_of_pairs}");
        }
    }

    #[test]
    fn sharegpt_is_long_tailed_within_its_bounds() {
        let drawn = drawn(Shape::Sharegpt, 4000, 1);
        let sorted = |of: fn(&Lengths) -> u32| {
            let mut all: Vec<u32> = drawn.iter().map(of).collect();
            all.sort_unstable();
            all
        };
        let (prompts, outputs) = (sorted(|lengths| lengths.prompt), sorted(|lengths| lengths.output));
        // The median is e^4.6 = 99.5; four thousand draws put it within 7 %.
        assert!((92..=107).contains(&prompts[2000]) && (92..=107).contains(&outputs[2000]));
        // One in ten is above the median times e^(1.2816 spread): 407 and 358.
        assert!((360..=460).contains(&prompts[3600]) && (315..=400).contains(&outputs[3600]));
        assert!(prompts[0] >= 8 && outputs[0] >= 4 && prompts[3999] == 1500 && outputs[3999] == 800);
    }
}
