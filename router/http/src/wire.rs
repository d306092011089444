//! TGI's JSON shapes of answers. They borrow: an answer is written once and dropped.

use headrace_engine::{FinishReason, GeneratedToken, TopToken};
use headrace_scheduler::TokenId;
use headrace_text::{Encoding, Tokenizer};
use serde::Serialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// `/generate`'s answer.
#[derive(Serialize, ToSchema)]
#[schema(as = GenerateResponse)]
pub(crate) struct Generated<'a> {
    pub generated_text: &'a str,
    /// Only when `details` or `decoder_input_details` was true.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub details: Option<Details<'a>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Details)]
pub(crate) struct Details<'a> {
    #[serde(flatten)]
    pub choice: Choice<'a>,
    /// The choices of `best_of` that lost; only when it was more than 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub best_of_sequences: Option<Vec<LostChoice<'a>>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = BestOfSequence)]
pub(crate) struct LostChoice<'a> {
    pub generated_text: &'a str,
    #[serde(flatten)]
    pub choice: Choice<'a>,
}

/// What details say of one choice.
#[derive(Serialize, ToSchema)]
#[schema(as = Choice)]
pub(crate) struct Choice<'a> {
    #[schema(value_type = FinishReasonName)]
    pub finish_reason: &'static str,
    pub generated_tokens: u32,
    /// Null when decoding was greedy.
    #[schema(required = true, format = "uint64")]
    pub seed: Option<u64>,
    /// The prompt's tokens; empty unless `decoder_input_details` was true.
    pub prefill: Vec<PrefillToken>,
    pub tokens: Vec<Token<'a>>,
    /// For each token the most likely ones at its place; only when `top_n_tokens` was more than 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub top_tokens: Vec<Vec<Token<'a>>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
pub(crate) struct Token<'a> {
    #[schema(value_type = u32)]
    pub id: TokenId,
    /// What the token adds to the text; empty while a character is incomplete.
    pub text: &'a str,
    #[schema(required = true)]
    pub logprob: Option<f32>,
    /// One of the model's special tokens, which `generated_text` leaves out.
    pub special: bool,
}

/// A token of the prompt. The first one has no log-probability.
#[derive(Serialize, ToSchema)]
pub(crate) struct PrefillToken {
    #[schema(value_type = u32)]
    pub id: TokenId,
    pub text: String,
    #[schema(value_type = Option<f32>, required = true)]
    pub logprob: f32,
}

/// One event of `/generate_stream`.
#[derive(Serialize, ToSchema)]
#[schema(as = StreamResponse)]
pub(crate) struct StreamEvent<'a> {
    /// From 1.
    #[schema(minimum = 1)]
    pub index: u32,
    pub token: Token<'a>,
    /// Only when `top_n_tokens` was more than 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub top_tokens: Vec<Token<'a>>,
    /// Null but in the last event.
    #[schema(required = true)]
    pub generated_text: Option<&'a str>,
    /// Null but in the last event, and only when asked for.
    #[schema(required = true)]
    pub details: Option<StreamDetails>,
}

#[derive(Clone, Copy, Serialize, ToSchema)]
pub(crate) struct StreamDetails {
    #[schema(value_type = FinishReasonName)]
    pub finish_reason: &'static str,
    pub generated_tokens: u32,
    /// Null when decoding was greedy.
    #[schema(required = true, format = "uint64")]
    pub seed: Option<u64>,
    pub input_length: u32,
}

/// An entry of `/tokenize`'s answer; `start` and `stop` are bytes of the text.
#[derive(Serialize, ToSchema)]
#[schema(as = SimpleToken)]
pub(crate) struct SimpleToken<'a> {
    #[schema(value_type = u32)]
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
    (0..).map_while(|place| simple_token(text, encoding, place)).collect()
}

/// The token at this place, if there are so many.
pub(crate) fn simple_token<'a>(text: &'a str, encoding: &Encoding, place: usize) -> Option<SimpleToken<'a>> {
    let (&id, &(start, stop)) = encoding.ids.get(place).zip(encoding.offsets.get(place))?;
    Some(SimpleToken { id, text: text.get(start..stop).unwrap_or_default(), start, stop })
}

/// TGI's word for it on native routes.
pub(crate) fn finish_reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::EndOfSequence => "eos_token",
        FinishReason::StopString => "stop_sequence",
    }
}

/// The words of [`finish_reason_name`], for the schema.
struct FinishReasonName;

impl ToSchema for FinishReasonName {
    fn name() -> std::borrow::Cow<'static, str> {
        "FinishReason".into()
    }
}

impl PartialSchema for FinishReasonName {
    fn schema() -> RefOr<Schema> {
        let reasons = [FinishReason::Length, FinishReason::EndOfSequence, FinishReason::StopString];
        let words = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(reasons.map(finish_reason_name)));
        words.into()
    }
}
