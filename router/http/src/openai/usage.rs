//! How many tokens a request had.

use headrace_engine::Finished;
use headrace_scheduler::Tokens;
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// A prompt counts once, however many choices it has.
    prompt_tokens: u32,
    /// Of all choices; an end-of-sequence token counts.
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: PromptTokensDetails,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PromptTokensDetails {
    /// Tokens whose KV was in the prefix cache when the request came.
    cached_tokens: u32,
}

impl Usage {
    /// Of one prompt and one answer to it.
    pub fn of(prompt: usize, finished: &Finished) -> Self {
        let mut usage = Self::default();
        usage.add_prompt(prompt, finished.cached);
        usage.add_answer(finished.generated);
        usage
    }

    /// `cached`: what its first choice found; the others find what that one computed.
    pub fn add_prompt(&mut self, tokens: usize, cached: Tokens) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(tokens as u32);
        self.prompt_tokens_details.cached_tokens = self.prompt_tokens_details.cached_tokens.saturating_add(cached.0);
        self.total();
    }

    pub fn add_answer(&mut self, generated: Tokens) {
        self.completion_tokens = self.completion_tokens.saturating_add(generated.0);
        self.total();
    }

    fn total(&mut self) {
        self.total_tokens = self.prompt_tokens.saturating_add(self.completion_tokens);
    }
}
