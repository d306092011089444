//! Whole answers: waits for generations and keeps what they bring.

use futures::future::try_join_all;
use headrace_engine::{Finished, GeneratedToken, Generation, Update};

use crate::error::ApiError;

/// What one generation brought, and which choice of its prompt it was.
pub(crate) struct Answer {
    pub choice: u32,
    /// Of the prompt's tokens, where they were asked for: the first choice of a prompt has them.
    pub prompt_logprobs: Vec<f32>,
    /// Empty unless somebody will look at them.
    pub tokens: Vec<GeneratedToken>,
    pub finished: Finished,
}

/// The answers of all choices of a prompt, in their order. One that fails fails all, and ends the others.
pub(crate) async fn collect(generations: Vec<Generation>, keep_tokens: bool) -> Result<Vec<Answer>, ApiError> {
    let collecting = (0..).zip(generations).map(|(choice, generation)| collect_one(choice, generation, keep_tokens));
    try_join_all(collecting).await
}

async fn collect_one(choice: u32, mut generation: Generation, keep_tokens: bool) -> Result<Answer, ApiError> {
    let mut prompt_logprobs = Vec::new();
    let mut tokens = Vec::new();
    while let Some(update) = generation.next().await {
        match update {
            Update::Prompt(logprobs) => prompt_logprobs = logprobs,
            Update::Token(token) if keep_tokens => tokens.push(token),
            Update::Token(_) => {}
            Update::Finished(finished) => return Ok(Answer { choice, prompt_logprobs, tokens, finished }),
            Update::Failed(error) => return Err(error.into()),
        }
    }
    Err(ApiError::Incomplete)
}
