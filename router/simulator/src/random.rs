//! A small generator of random numbers with a written-down seed: the same seed, the same workload.

/// SplitMix64 (Steele, Lea, Flood 2014): 64 bits of state, passes BigCrush, and any seed is a good one.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Between 0 and 1, neither included.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// `low … high`, both included.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + (self.unit() * f64::from(high - low + 1)) as u32
    }

    /// Times between arrivals of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    /// e^(μ + σ·z) with z normal, by its median e^μ.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        median * (sigma * normal).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(count: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn the_first_numbers_of_seed_0_are_the_published_ones() {
        let mut random = Random::new(0);
        assert_eq!([random.bits(), random.bits()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
    }

    #[test]
    fn every_number_of_a_range_comes_equally_often() {
        let mut random = Random::new(1);
        let mut counts = [0_u32; 5];
        (0..10_000).for_each(|_| counts[random.between(3, 7) as usize - 3] += 1);
        assert!(counts.iter().all(|count| (1_850..=2_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn means_are_what_they_should_be() {
        let mut random = Random::new(2);
        let exponential = mean(20_000, || random.exponential(5.0));
        assert!((4.8..=5.2).contains(&exponential), "{exponential}");
        let log_normal = mean(20_000, || random.log_normal(100.0, 0.5));
        assert!((110.0..=116.0).contains(&log_normal), "100·e^(0.5²/2) = 113.3, not {log_normal}");
    }
}
