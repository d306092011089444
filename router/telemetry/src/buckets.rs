//! Upper bounds of histograms' buckets.

/// Which bounds a histogram has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// 35 bounds from 0.15 ms, each 1.5 times the one before: TGI's, up to 145 s.
    Durations,
    /// 100 equal buckets up to the longest prompt: TGI's.
    PromptLengths,
    /// 100 equal buckets up to the longest prompt and answer together: TGI's.
    TotalLengths,
    /// 1, 2, 3, … 1,024: TGI's for the sizes of batches.
    EverySize,
    /// 1, 2, 4, … 32,768.
    Doubling,
}

/// The limits that length buckets end at, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    pub max_input_tokens: u32,
    pub max_total_tokens: u32,
}

impl Buckets {
    pub(crate) fn bounds(self, lengths: Lengths) -> Vec<f64> {
        match self {
            Self::Durations => std::iter::successors(Some(0.000_15), |bound| Some(bound * 1.5)).take(35).collect(),
            Self::PromptLengths => linear(lengths.max_input_tokens),
            Self::TotalLengths => linear(lengths.max_total_tokens),
            Self::EverySize => (1..=1024).map(f64::from).collect(),
            Self::Doubling => (0..16).map(|power| f64::from(1 << power)).collect(),
        }
    }

    /// For the documentation.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Durations => "35 from 0.15 ms, each 1.5 times the one before",
            Self::PromptLengths => "100 equal ones up to --max-input-tokens",
            Self::TotalLengths => "100 equal ones up to --max-total-tokens",
            Self::EverySize => "1, 2, 3, … 1,024",
            Self::Doubling => "1, 2, 4, … 32,768",
        }
    }
}

/// 100 equal buckets up to `limit`.
fn linear(limit: u32) -> Vec<f64> {
    (1..=100).map(|n| f64::from(limit.max(1)) / 100.0 * f64::from(n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: Lengths = Lengths { max_input_tokens: 1000, max_total_tokens: 2000 };

    #[test]
    fn durations_have_tgis_buckets() {
        let bounds = Buckets::Durations.bounds(LENGTHS);
        assert_eq!(bounds.len(), 35);
        assert!((bounds[0] - 0.000_15).abs() < 1e-12);
        assert!((bounds[34] - 0.000_15 * 1.5_f64.powi(34)).abs() < 1e-6);
    }

    #[test]
    fn lengths_have_a_hundred_buckets_that_end_at_their_limit() {
        let bounds = Buckets::PromptLengths.bounds(LENGTHS);
        assert_eq!((bounds.len(), bounds[0], bounds[99]), (100, 10.0, 1000.0));
        assert_eq!(Buckets::TotalLengths.bounds(LENGTHS)[99], 2000.0);
    }

    #[test]
    fn batch_sizes_have_a_bucket_each() {
        let bounds = Buckets::EverySize.bounds(LENGTHS);
        assert_eq!((bounds.len(), bounds[0], bounds[1023]), (1024, 1.0, 1024.0));
    }
}
