//! What one step brought back.

use headrace_scheduler::{RequestId, Row, StepId, TokenId};

/// The answer of the logical shard to one step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepResult {
    pub step: StepId,
    /// One entry per `StepPlan::sampling_rows`, in that order. Empty when `error` is set.
    pub samples: Vec<SampledToken>,
    /// Log-probabilities of prompt positions, per chunk whose request asked; position 0 of a prompt is NaN.
    pub prompt_logprobs: Vec<(RequestId, Vec<f32>)>,
    /// Rows that failed alone, with the shard's sentence; also rows that did not sample.
    pub row_errors: Vec<(Row, String)>,
    /// The whole step failed.
    pub error: Option<StepError>,
    pub timing: StepTiming,
}

/// Why a whole step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    /// The shard's, with the rank's name.
    pub sentence: String,
    /// Only memory was missing: its rows may be computed again in smaller steps.
    pub out_of_memory: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SampledToken {
    /// 0 for a row named in `row_errors`.
    pub token: TokenId,
    /// Only when asked for.
    pub logprob: Option<f32>,
    /// Most likely tokens first; only when asked for.
    pub top: Vec<(TokenId, f32)>,
}

/// Microseconds on rank 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTiming {
    /// From arrival in the inbox to the start of the step.
    pub inbox_us: u32,
    pub forward_us: u32,
    pub sampling_us: u32,
}
