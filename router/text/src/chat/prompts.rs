//! From a conversation to the tokens that the model sees.

use std::sync::Arc;

use jiff::civil::DateTime;

use super::cache::TokenCache;
use super::conversation::Conversation;
use super::error::TemplateError;
use super::guard::Guard;
use super::templates::ChatTemplates;
use crate::error::TokenizerError;
use crate::sections::Sections;
use crate::tokenizer::{Encoding, Tokenizer};

/// Makes prompts. Share it by `Arc`: it remembers the tokens of what chats repeat.
pub struct ChatPrompts {
    templates: ChatTemplates,
    tokenizer: Arc<Tokenizer>,
    sections: Option<Sections>,
    cache: TokenCache,
    guard: Option<Guard>,
}

/// A chat as its template wrote it, not tokenized yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedChat {
    /// Under the guard with twins in it.
    text: String,
}

/// A rendered chat and its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatPrompt {
    pub text: String,
    /// Without tokens around it: the template has those that the model expects.
    pub encoding: Encoding,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

impl ChatPrompts {
    /// With `guarded`, no text of a message becomes a special token: only the template writes those.
    pub fn new(templates: ChatTemplates, tokenizer: Arc<Tokenizer>, guarded: bool) -> Self {
        Self {
            sections: Sections::of(tokenizer.inner()),
            guard: guarded.then(|| Guard::new(&tokenizer)),
            cache: TokenCache::new(CACHE_BYTES),
            templates,
            tokenizer,
        }
    }

    /// Both steps; each may take long on a long chat.
    pub fn make(&self, conversation: Conversation, now: &DateTime) -> Result<ChatPrompt, PromptError> {
        Ok(self.encode(self.render(conversation, now)?)?)
    }

    /// The first step: the chat's text.
    pub fn render(&self, conversation: Conversation, now: &DateTime) -> Result<RenderedChat, TemplateError> {
        let conversation = match &self.guard {
            Some(guard) => guard.cover(conversation, self.templates.constants()),
            None => conversation,
        };
        self.templates.render(&conversation, now).map(|text| RenderedChat { text })
    }

    /// Bytes of the chat's text, and how many tokens it has at least, as [`Tokenizer::least_tokens`] says.
    pub fn size(&self, chat: &RenderedChat) -> (usize, usize) {
        let bytes = match &self.guard {
            Some(guard) => guard.bytes(&chat.text),
            None => chat.text.len(),
        };
        let drops_text = self.guard.as_ref().is_some_and(Guard::drops_text);
        (bytes, if drops_text { 0 } else { self.tokenizer.least_tokens(bytes) })
    }

    /// The second step: the text's tokens.
    pub fn encode(&self, chat: RenderedChat) -> Result<ChatPrompt, TokenizerError> {
        let RenderedChat { text } = chat;
        match &self.guard {
            Some(guard) => guard.encode(&text, &self.cache),
            None => self.encode_text(&text).map(|encoding| ChatPrompt { text, encoding }),
        }
    }

    /// The tokens of `text`, section by section: those of earlier turns are in the cache.
    fn encode_text(&self, text: &str) -> Result<Encoding, TokenizerError> {
        let Some(sections) = &self.sections else { return self.tokenizer.encode(text, false) };
        let mut whole = Encoding::default();
        for range in sections.split(text) {
            let section = &text[range.clone()];
            let encoding = self.cache.get(section, || self.tokenizer.encode(section, false))?;
            whole.append(&encoding, range.start);
        }
        Ok(whole)
    }
}

impl Encoding {
    /// Adds the tokens of a text that begins at byte `at`.
    pub(super) fn append(&mut self, other: &Self, at: usize) {
        self.ids.extend_from_slice(&other.ids);
        self.offsets.extend(other.offsets.iter().map(|&(start, end)| (at + start, at + end)));
    }
}

/// Chats of half a million tokens or so.
const CACHE_BYTES: usize = 32 << 20;
