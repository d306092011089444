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

/// A rendered chat.
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

    /// Renders and tokenizes; both may take long on a long chat.
    pub fn make(&self, conversation: Conversation, now: &DateTime) -> Result<ChatPrompt, PromptError> {
        match &self.guard {
            Some(guard) => {
                let text = self.templates.render(&guard.cover(conversation, self.templates.constants()), now)?;
                Ok(guard.encode(&text, &self.cache)?)
            }
            None => {
                let text = self.templates.render(&conversation, now)?;
                let encoding = self.encode(&text)?;
                Ok(ChatPrompt { text, encoding })
            }
        }
    }

    /// The tokens of `text`, section by section: those of earlier turns are in the cache.
    fn encode(&self, text: &str) -> Result<Encoding, TokenizerError> {
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
