//! TGI's JSON shapes of answers. They borrow: an answer is written once and dropped.

use headrace_engine::{FinishReason, GeneratedToken, TopToken};
use headrace_scheduler::TokenId;
use headrace_text::{Encoding, Tokenizer};
use serde::Serialize;

/// `/generate`'s answer.
#[derive(Serialize)]
pub(crate) struct Generated<'a> {
    pub generated_text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details<'a>>,
}

#[derive(Serialize)]
pub(crate) struct Details<'a> {
    #[serde(flatten)]
    pub choice: Choice<'a>,
    /// The choices of `best_of` that lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_of_sequences: Option<Vec<LostChoice<'a>>>,
}

#[derive(Serialize)]
pub(crate) struct LostChoice<'a> {
    pub generated_text: &'a str,
    #[serde(flatten)]
    pub choice: Choice<'a>,
}

/// What details say of one choice.
#[derive(Serialize)]
pub(crate) struct Choice<'a> {
    pub finish_reason: &'static str,
    pub generated_tokens: u32,
    /// Null when decoding was greedy.
    pub seed: Option<u64>,
    pub prefill: Vec<PrefillToken>,
    pub tokens: Vec<Token<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub top_tokens: Vec<Vec<Token<'a>>>,
}

#[derive(Serialize)]
pub(crate) struct Token<'a> {
    pub id: TokenId,
    pub text: &'a str,
    pub logprob: Option<f32>,
    pub special: bool,
}

/// A token of the prompt. The first one has no log-probability.
#[derive(Serialize)]
pub(crate) struct PrefillToken {
    pub id: TokenId,
    pub text: String,
    pub logprob: f32,
}

/// One event of `/generate_stream`.
#[derive(Serialize)]
pub(crate) struct StreamEvent<'a> {
    /// From 1.
    pub index: u32,
    pub token: Token<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub top_tokens: Vec<Token<'a>>,
    /// Null but in the last event.
    pub generated_text: Option<&'a str>,
    /// Null but in the last event, and only when asked for.
    pub details: Option<StreamDetails>,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct StreamDetails {
    pub finish_reason: &'static str,
    pub generated_tokens: u32,
    pub seed: Option<u64>,
    pub input_length: u32,
}

/// An entry of `/tokenize`'s answer; `start` and `stop` are bytes of the text.
#[derive(Serialize)]
pub(crate) struct SimpleToken<'a> {
    pub id: TokenId,
    pub text: &'a str,
    pub start: usize,
    pub stop: usize,
}

impl<'a> Token<'a> {
    pub fn sampled(token: &'a GeneratedToken) -> Self {
        Self { id: token.id, text: &token.text, logprob: token.logprob, special: token.special }
    }

    pub fn top(tokens: &'a [TopToken]) -> Vec<Self> {
        let entry = |token: &'a TopToken| Self {
            id: token.id,
            text: &token.text,
            logprob: Some(token.logprob),
            special: token.special,
        };
        tokens.iter().map(entry).collect()
    }
}

/// The prompt's tokens with their log-probabilities; empty when there are none.
pub(crate) fn prefill(tokenizer: &Tokenizer, prompt: &[TokenId], logprobs: &[f32]) -> Vec<PrefillToken> {
    let entry = |(&id, &logprob): (&TokenId, &f32)| PrefillToken { id, text: tokenizer.token_text(id), logprob };
    prompt.iter().zip(logprobs).map(entry).collect()
}

/// The tokens of `text` and where they lie in it.
pub(crate) fn simple_tokens<'a>(text: &'a str, encoding: &Encoding) -> Vec<SimpleToken<'a>> {
    let entry = |(&id, &(start, stop)): (&TokenId, &(usize, usize))| SimpleToken {
        id,
        text: text.get(start..stop).unwrap_or_default(),
        start,
        stop,
    };
    encoding.ids.iter().zip(&encoding.offsets).map(entry).collect()
}

/// TGI's word for it on native routes.
pub(crate) fn finish_reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::EndOfSequence => "eos_token",
        FinishReason::StopString => "stop_sequence",
    }
}
