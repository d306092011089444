//! Log-probabilities as the two routes tell them: completions in parallel lists, chats token by token.

use headrace_engine::{GeneratedToken, TopToken};
use headrace_scheduler::TokenId;
use headrace_text::Tokenizer;
use serde::ser::{Serialize, SerializeMap, Serializer};
use utoipa::ToSchema;

/// Of a completion: entry i of each list is about token i.
#[derive(Debug, Default, PartialEq, serde::Serialize, ToSchema)]
pub(crate) struct CompletionLogprobs {
    tokens: Vec<String>,
    /// Null for a token that nothing comes before.
    token_logprobs: Vec<Option<f32>>,
    /// The likeliest tokens and the one that was chosen. Null where none were asked for, and for a prompt's first token.
    #[schema(value_type = Option<Vec<Option<std::collections::BTreeMap<String, f32>>>>)]
    top_logprobs: Option<Vec<Option<Likely>>>,
    /// Characters of the choice's text before the token.
    text_offset: Vec<usize>,
}

/// Texts and log-probabilities, likeliest first. Of two tokens with one text the likelier is shown.
#[derive(Debug, PartialEq)]
struct Likely(Vec<(String, f32)>);

/// Of a chat's answer.
#[derive(Debug, PartialEq, serde::Serialize, ToSchema)]
pub(crate) struct ChatLogprobs {
    content: Vec<TokenLogprob>,
}

#[derive(Debug, PartialEq, serde::Serialize, ToSchema)]
pub(crate) struct TokenLogprob {
    token: String,
    logprob: f32,
    /// Where a character has several tokens, none of them is text of its own.
    bytes: Vec<u8>,
    /// Likeliest first.
    top_logprobs: Vec<TopLogprob>,
}

#[derive(Debug, PartialEq, serde::Serialize, ToSchema)]
pub(crate) struct TopLogprob {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

/// Writes a completion's lists, all at once or piece by piece.
pub(crate) struct Lists<'a> {
    pub tokenizer: &'a Tokenizer,
    /// Likely tokens are told.
    pub top: bool,
    /// Characters of text so far.
    pub offset: &'a mut usize,
}

impl Lists<'_> {
    pub fn begin(&self) -> CompletionLogprobs {
        CompletionLogprobs { top_logprobs: self.top.then(Vec::new), ..CompletionLogprobs::default() }
    }

    /// The prompt's own tokens are all that is known of what was likely there.
    pub fn add_prompt(&mut self, tokens: &[TokenId], logprobs: &[f32], to: &mut CompletionLogprobs) {
        for (place, &id) in tokens.iter().enumerate() {
            let bytes = self.tokenizer.token_bytes(id);
            let logprob = logprobs.get(place).copied().filter(|logprob| !logprob.is_nan()).map(shown);
            let text = lossy(&bytes);
            if let Some(top) = &mut to.top_logprobs {
                top.push(logprob.map(|logprob| Likely(vec![(text.clone(), logprob)])));
            }
            to.push(text, logprob, *self.offset);
            // A character counts where it begins.
            *self.offset += bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count();
        }
    }

    pub fn add(&mut self, token: &GeneratedToken, to: &mut CompletionLogprobs) {
        let text = lossy(&self.tokenizer.token_bytes(token.id));
        let logprob = token.logprob.map(shown);
        if let Some(top) = &mut to.top_logprobs {
            top.push(Some(self.likely(token, &text, logprob)));
        }
        to.push(text, logprob, *self.offset);
        *self.offset += token.text.chars().count();
    }

    fn likely(&self, token: &GeneratedToken, text: &str, logprob: Option<f32>) -> Likely {
        let top = token.top.iter().map(|top| (lossy(&self.tokenizer.token_bytes(top.id)), shown(top.logprob)));
        let chosen = logprob.map(|logprob| (text.to_owned(), logprob));
        let mut likely: Vec<(String, f32)> = Vec::with_capacity(token.top.len() + 1);
        for (text, logprob) in top.chain(chosen) {
            if likely.iter().all(|(other, _)| *other != text) {
                likely.push((text, logprob));
            }
        }
        Likely(likely)
    }
}

impl CompletionLogprobs {
    fn push(&mut self, token: String, logprob: Option<f32>, offset: usize) {
        self.tokens.push(token);
        self.token_logprobs.push(logprob);
        self.text_offset.push(offset);
    }
}

impl Serialize for Likely {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (text, logprob) in &self.0 {
            map.serialize_entry(text, logprob)?;
        }
        map.end()
    }
}

impl ChatLogprobs {
    pub fn of(tokens: &[GeneratedToken], tokenizer: &Tokenizer) -> Self {
        Self { content: tokens.iter().map(|token| TokenLogprob::of(token, tokenizer)).collect() }
    }
}

impl TokenLogprob {
    fn of(token: &GeneratedToken, tokenizer: &Tokenizer) -> Self {
        let bytes = tokenizer.token_bytes(token.id);
        Self {
            token: lossy(&bytes),
            logprob: shown(token.logprob.unwrap_or(f32::NEG_INFINITY)),
            bytes,
            top_logprobs: token.top.iter().map(|top| TopLogprob::of(top, tokenizer)).collect(),
        }
    }
}

impl TopLogprob {
    fn of(top: &TopToken, tokenizer: &Tokenizer) -> Self {
        let bytes = tokenizer.token_bytes(top.id);
        Self { token: lossy(&bytes), logprob: shown(top.logprob), bytes }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// JSON has no −∞: OpenAI's word for "very unlikely".
fn shown(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}
