//! The body of `/v1/completions`.

use serde::Deserialize;
use utoipa::ToSchema;

use super::body::{Common, Reports};
use super::later::Later;
use super::prompts::{Prompts, PromptsShape};
use crate::error::ApiError;
use crate::invalid::Invalid;
use crate::numbers::whole;
use crate::payload::FromJson;
use crate::state::{Limits, Shared};

/// Views of one object: each reads its own fields past the others', so that an error names the field's whole path.
#[derive(Clone, Debug, ToSchema)]
#[schema(as = CompletionRequest)]
pub(crate) struct CompletionBody {
    #[serde(flatten)]
    pub common: Common,
    #[serde(flatten)]
    pub own: Completion,
    #[serde(flatten)]
    pub later: Later,
}

/// What no other route reads.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct Completion {
    /// A text, a list of texts, the token ids of one prompt, or a list of such lists.
    #[schema(value_type = PromptsShape)]
    pub prompt: Prompts,
    /// Not supported: a text that is not empty is refused.
    #[serde(default)]
    pub suffix: Option<String>,
    /// Begin the answer with the prompt.
    #[serde(default)]
    pub echo: Option<bool>,
    /// Tell the log-probability of each token, and of so many likely ones beside it, at most 5 or `--max-top-n-tokens`.
    #[serde(default, deserialize_with = "whole")]
    pub logprobs: Option<u32>,
    /// Generate so many choices, of which the `n` likeliest are answered.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 1)]
    pub best_of: Option<u32>,
}

impl FromJson for CompletionBody {
    fn from_json(bytes: &[u8]) -> Result<Self, ApiError> {
        let (common, own) = (Common::from_json(bytes)?, Completion::from_json(bytes)?);
        Ok(Self { common, own, later: Later::from_json(bytes)? })
    }
}

impl Completion {
    pub fn echoes(&self) -> bool {
        self.echo == Some(true)
    }

    pub fn reports(&self) -> Reports {
        let logprobs = self.logprobs.is_some();
        Reports { logprobs, top: self.logprobs.unwrap_or(0), prompt: logprobs && self.echoes() }
    }

    /// What only this route can have wrong, in TGI's order.
    pub fn check(&self, state: &Shared) -> Result<(), ApiError> {
        if self.suffix.as_deref().is_some_and(|suffix| !suffix.is_empty()) {
            return Err(ApiError::Suffix);
        }
        let Limits { max_client_batch_size, max_concurrent_requests, .. } = state.limits;
        let (max, flag) = match max_client_batch_size <= max_concurrent_requests {
            true => (max_client_batch_size, "--max-client-batch-size"),
            false => (max_concurrent_requests, "--max-concurrent-requests"), // they run at once
        };
        let given = self.prompt.len();
        if given > max as usize {
            return Err(ApiError::BatchSize { max, flag, given });
        }
        let vocab_size = state.tokenizer.vocab_size();
        match self.prompt.outside(vocab_size) {
            Some(given) => Err(Invalid::PromptToken { vocab_size, given }.into()),
            None => Ok(()),
        }
    }
}
