//! How a row turns logits into tokens.

use headrace_scheduler::TokenId;

/// Sampling parameters of one request, resolved: nothing here is 'default'. `proto/shard.proto` says what each means.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0: greedy.
    pub temperature: f32,
    /// 0: all tokens.
    pub top_k: u32,
    pub top_p: Option<f32>,
    pub typical_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub frequency_penalty: f32,
    pub presence_penalty: f32,
    pub seed: u64,
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Return each sampled token's log-probability.
    pub logprobs: bool,
    /// Return this many most likely tokens beside each sampled one.
    pub top_n: u32,
    /// Return the log-probability of every prompt position.
    pub prompt_logprobs: bool,
}

impl Sampling {
    /// Arg-max, nothing reported.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: None,
            typical_p: None,
            min_p: None,
            repetition_penalty: None,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: 0,
            logit_bias: Vec::new(),
            logprobs: false,
            top_n: 0,
            prompt_logprobs: false,
        }
    }
}
