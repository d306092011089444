//! How long a step takes, and the router between two steps.
//!
//! ```text
//! t = base + per_token · tokens + per_row · sampling rows + per_context · Σ context of decode rows
//!          + per_pair · Σ (tokens · context) of chunks            [µs]
//! ```
//!
//! The scheduler learns the same five terms from the steps of a server, so what it learned can be put into a file here.
//! Weights are read once a step however many rows share it (`base`); a decode row reads its keys and values
//! (`per_context`); prompt tokens multiply with every weight (`per_token`) and, in attention, with their context
//! (`per_pair`). Real GPUs overlap reading and computing, so the sum is a little pessimistic where both are large.

use headrace_scheduler::{Micros, StepCost, Tokens};
use serde::Deserialize;

/// A machine with a model on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    pub step: StepCost,
    /// From the moment a step is planned until the shard can begin it. Hidden behind the step before, if there is one.
    pub router: Micros,
    /// How long before the end of the step under way the next one is planned; `None`: as long as the router needs.
    pub lead: Option<Micros>,
    /// Between two steps that follow at once: what the shard needs for neither of them.
    pub gap: Micros,
    /// Size of the KV pool where no flag gives one.
    pub pool: Tokens,
    /// Prompt tokens of one step where no flag gives them: 512 on a CPU, 4,096 on a GPU, as the server has it.
    pub prefill: Tokens,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostModelError {
    #[error("{0}")]
    Malformed(String),
    #[error("{key} is {value}; it must be a number of µs, 0 or more")]
    NotATime { key: &'static str, value: String },
    #[error("{key} is 0; it must be at least 1 token")]
    NoTokens { key: &'static str },
    #[error("every key is 0, so steps would take no time; give at least base")]
    Free,
}

impl CostModel {
    /// Every step takes a millisecond, and nothing else takes any time: times are step counts.
    pub const UNIT: Self = Self {
        step: StepCost { base: 1_000.0, per_token: 0.0, per_row: 0.0, per_context: 0.0, per_pair: 0.0 },
        router: Micros(0),
        lead: None,
        gap: Micros(0),
        pool: Tokens(32 * 1024),
        prefill: Tokens(512),
    };

    /// SmolLM2-135M in bfloat16 on two cores of an Intel Xeon with AMX, measured through this server: a decode step of
    /// one row takes about 24 ms, of 48 rows 75 ms, and a prompt of 512 tokens 285 ms. From the prompt, with 131,000
    /// pairs of 0.05 µs, a token costs 0.5 ms; a decode row costs (75 − 24) ÷ 47 = 1.1 ms, of which its token is 0.5, its
    /// context of about 100 tokens 0.1, and sampling with its row of logits the rest. The router sends a step 2 ms
    /// before the one under way is predicted to end.
    pub const CPU_SMOLLM2: Self = Self {
        step: StepCost { base: 22_900.0, per_token: 499.0, per_row: 490.0, per_context: 1.0, per_pair: 0.05 },
        router: Micros(2_000),
        pool: Tokens(64 * 1024),
        ..Self::UNIT
    };

    /// Llama-2-7B in float16 on an A100 SXM of 80 GB (2.04 TB/s, 312 TFLOP/s dense), by arithmetic:
    ///
    /// - `base`: 13.5 GB of weights at 85 % of the bandwidth are 7.8 ms, and 0.7 ms to launch kernels and sample.
    /// - `per_token`: 2 · 6.74e9 FLOP at 55 % of the peak, 78 µs.
    /// - `per_row`: a row of 32,000 logits and its share of the sampler, about 10 µs.
    /// - `per_context`: 2 · 32 layers · 4,096 · 2 B = 512 KiB of keys and values at 80 % of the bandwidth, 0.32 µs.
    /// - `per_pair`: 4 · 4,096 · 32 FLOP at 40 % of the peak, 0.0042 µs.
    /// - `pool`: 90 % of 80 GB, less weights and 2 GB of workspace, by 512 KiB a token.
    pub const A100_7B: Self = Self {
        step: StepCost { base: 8_500.0, per_token: 78.0, per_row: 10.0, per_context: 0.32, per_pair: 0.0042 },
        router: Micros(2_000),
        pool: Tokens(107_000),
        prefill: Tokens(4096),
        ..Self::UNIT
    };

    /// Llama-3.1-8B in bfloat16 on an H200 (4.8 TB/s, 989 TFLOP/s dense), by the same arithmetic: 16.1 GB of weights are
    /// 3.9 ms and 0.6 ms of launches; 2 · 8.03e9 FLOP a token, 29.5 µs; 128,256 logits a row; 2 · 32 layers · 8 heads ·
    /// 128 · 2 B = 128 KiB a context token (grouped queries: a quarter of the 7B's); 108 GB of pool.
    pub const H200_8B: Self = Self {
        step: StepCost { base: 4_500.0, per_token: 29.5, per_row: 10.0, per_context: 0.034, per_pair: 0.0013 },
        router: Micros(2_000),
        pool: Tokens(824_000),
        prefill: Tokens(4096),
        ..Self::UNIT
    };

    /// A preset by its name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "unit" => Some(Self::UNIT),
            "cpu-smollm2" => Some(Self::CPU_SMOLLM2),
            "a100-7b" => Some(Self::A100_7B),
            "h200-8b" => Some(Self::H200_8B),
            _ => None,
        }
    }

    /// Reads a cost model: keys `base`, `per_token`, `per_row`, `per_context`, `per_pair` in µs, and if they are there
    /// `router`, `lead` (default: `router`) and `gap` in µs, `pool_tokens` and `prefill_tokens`.
    ///
    /// # Errors
    ///
    /// Names the key.
    pub fn from_toml(text: &str) -> Result<Self, CostModelError> {
        let file: File = toml::from_str(text).map_err(|error| CostModelError::Malformed(error.to_string()))?;
        let time = |key, value: f64| match value {
            _ if (0.0..=1e9).contains(&value) => Ok(value),
            _ => Err(CostModelError::NotATime { key, value: value.to_string() }),
        };
        let tokens = |key, value: Option<u32>, default: Tokens| match value {
            Some(0) => Err(CostModelError::NoTokens { key }),
            value => Ok(value.map_or(default, Tokens)),
        };
        let step = StepCost {
            base: time("base", file.base)?,
            per_token: time("per_token", file.per_token)?,
            per_row: time("per_row", file.per_row)?,
            per_context: time("per_context", file.per_context)?,
            per_pair: time("per_pair", file.per_pair)?,
        };
        if step.base + step.per_token + step.per_row + step.per_context + step.per_pair == 0.0 {
            return Err(CostModelError::Free);
        }
        let whole = |key, value: f64| time(key, value).map(|time| Micros(time.round() as u64));
        let router = whole("router", file.router.unwrap_or_default())?;
        Ok(Self {
            step,
            router,
            lead: file.lead.map(|lead| whole("lead", lead)).transpose()?,
            gap: whole("gap", file.gap.unwrap_or_default())?,
            pool: tokens("pool_tokens", file.pool_tokens, Self::UNIT.pool)?,
            prefill: tokens("prefill_tokens", file.prefill_tokens, Self::UNIT.prefill)?,
        })
    }

    /// What [`from_toml`](Self::from_toml) reads.
    pub fn to_toml(&self) -> String {
        let StepCost { base, per_token, per_row, per_context, per_pair } = self.step;
        // A millionth of a microsecond is finer than any clock, even times a million pairs.
        let steps = [base, per_token, per_row, per_context, per_pair].map(|term| (term * 1e6).round() / 1e6);
        let steps = ["base", "per_token", "per_row", "per_context", "per_pair"].into_iter().zip(steps);
        let turns = [("router", Some(self.router)), ("lead", self.lead), ("gap", Some(self.gap))];
        let turns = turns.into_iter().filter_map(|(key, time)| time.map(|time| (key, time.0)));
        let sizes = [("pool_tokens", self.pool), ("prefill_tokens", self.prefill)];
        let lines = steps.map(|(key, value)| format!("{key} = {value}\n"));
        let lines = lines.chain(turns.map(|(key, value)| format!("{key} = {value}\n")));
        lines.chain(sizes.map(|(key, value)| format!("{key} = {value}\n"))).collect()
    }
}

/// A cost model as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    base: f64,
    per_token: f64,
    per_row: f64,
    per_context: f64,
    per_pair: f64,
    router: Option<f64>,
    lead: Option<f64>,
    gap: Option<f64>,
    pool_tokens: Option<u32>,
    prefill_tokens: Option<u32>,
}

#[cfg(test)]
mod tests {
    use headrace_scheduler::StepShape;

    use super::*;

    fn decode(rows: u32, context: u32) -> StepShape {
        let mut shape = StepShape::default();
        (0..rows).for_each(|_| shape.add_decode(Tokens(context)));
        shape
    }

    #[test]
    fn five_keys_make_a_cost_model() {
        let text = "base = 1\nper_token = 2.5\nper_row = 3\nper_context = 0.25\nper_pair = 0.01";
        let expected = StepCost { base: 1.0, per_token: 2.5, per_row: 3.0, per_context: 0.25, per_pair: 0.01 };
        assert_eq!(CostModel::from_toml(text), Ok(CostModel { step: expected, ..CostModel::UNIT }));
        let more = format!("{text}\nrouter = 1500\npool_tokens = 77\nprefill_tokens = 9");
        let read = CostModel::from_toml(&more).expect("valid");
        assert_eq!((read.router, read.pool, read.prefill), (Micros(1500), Tokens(77), Tokens(9)));
    }

    #[test]
    fn what_is_written_is_what_was_read() {
        let model = CostModel { router: Micros(310), lead: Some(Micros(2_100)), gap: Micros(90), ..CostModel::H200_8B };
        assert_eq!(CostModel::from_toml(&model.to_toml()), Ok(model));
    }

    #[test]
    fn an_error_names_the_key() {
        let rest = "per_row = 0\nper_context = 0\nper_pair = 0\n";
        for (text, part) in [
            ("per_token = 0\n", "base"),
            ("base = -1\nper_token = 0\n", "base"),
            ("base = nan\nper_token = 0\n", "base"),
            ("base = 1\nper_token = 'x'\n", "per_token"),
            ("base = 1\nper_token = 0\nper_tokens = 0\n", "per_tokens"),
            ("base = 1\nper_token = 0\npool_tokens = 0\n", "pool_tokens"),
            ("base = 0\nper_token = 0\n", "every key is 0"),
        ] {
            let error = CostModel::from_toml(&format!("{text}{rest}")).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_small_model_takes_what_was_measured() {
        let cost = CostModel::CPU_SMOLLM2.step;
        let mut prompt = StepShape::default();
        prompt.add_chunk(Tokens(0), Tokens(512), true);
        for (shape, ms) in [(decode(1, 100), 24), (decode(48, 100), 75), (prompt, 285)] {
            let predicted = cost.predict(shape).0;
            assert!(predicted.abs_diff(ms * 1000) <= ms * 20, "{predicted} µs, not {ms} ms");
        }
    }
}
