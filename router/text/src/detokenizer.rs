//! One answer's ids become text as they come.

use std::sync::Arc;

use crate::pieces::{Lead, Pieces};
use crate::tokenizer::Tokenizer;
use crate::utf8::Utf8Stream;
use crate::window::Window;

/// Whether special tokens appear in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    Show,
    Skip,
}

/// Turns ids into text one at a time, in O(1) per token.
///
/// No push ends inside a character. All pushes together, and [`finish`](Self::finish) after them, equal
/// [`Tokenizer::decode`] of all ids, but that an incomplete last character is left out instead of shown as U+FFFD.
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    specials: SpecialTokens,
    /// Where the tokenizer has a table of pieces, these two…
    start: Start,
    utf8: Utf8Stream,
    /// …and where it has none, this one.
    window: Window,
}

/// How much of the text's beginning is still to be left out.
enum Start {
    /// Nothing was pushed yet, and the first token loses its space markers.
    FirstToken {
        marker: char,
    },
    /// So many more of this character may be stripped, if nothing else comes first.
    Strip {
        content: char,
        left: usize,
    },
    Past,
}

impl Detokenizer {
    /// For an answer that begins a text of its own.
    pub fn new(tokenizer: Arc<Tokenizer>, specials: SpecialTokens) -> Self {
        let start = tokenizer.pieces().map_or(Start::Past, |pieces| Start::of(pieces.lead));
        Self { tokenizer, specials, start, utf8: Utf8Stream::default(), window: Window::default() }
    }

    /// What this token adds to the text: empty while a character is incomplete, for skipped special tokens and for ids
    /// outside the vocabulary.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        self.push_into(id, &mut text);
        text
    }

    /// [`push`](Self::push), appended to `text`.
    pub fn push_into(&mut self, id: u32, text: &mut String) {
        let skipped = self.specials == SpecialTokens::Skip && self.tokenizer.is_special(id);
        if skipped || id >= self.tokenizer.vocab_size() {
            return;
        }
        match (self.tokenizer.pieces(), &self.start) {
            (Some(pieces), Start::Past) => self.utf8.push(pieces.get(id), text),
            (Some(pieces), _) => self.utf8.push(&self.start.trim(id, pieces, &self.tokenizer), text),
            (None, _) => self.window.push(id, &self.tokenizer, text),
        }
    }

    /// Complete characters that were still held back; an incomplete one is dropped.
    pub fn finish(&mut self) -> String {
        self.window.finish(&self.tokenizer)
    }
}

impl Start {
    fn of(lead: Lead) -> Self {
        match lead {
            Lead::Keep => Self::Past,
            Lead::Strip { content, count } => Self::Strip { content, left: count },
            Lead::Drop { marker } => Self::FirstToken { marker },
        }
    }

    /// The token's bytes without what is left out at the start of a text.
    fn trim(&mut self, id: u32, pieces: &Pieces, tokenizer: &Tokenizer) -> Vec<u8> {
        match *self {
            Self::Past => pieces.get(id).to_vec(),
            Self::FirstToken { marker } => {
                *self = Self::Past;
                tokenizer.entry(id).unwrap_or_default().replace(marker, "").into_bytes()
            }
            Self::Strip { content, left } => {
                let (rest, stripped) = strip(pieces.get(id), content, left);
                *self = if rest.is_empty() && stripped < left {
                    Self::Strip { content, left: left - stripped }
                } else {
                    Self::Past
                };
                rest.to_vec()
            }
        }
    }
}

/// `bytes` without up to `most` times `content` at their start, and how often it was there.
fn strip(bytes: &[u8], content: char, most: usize) -> (&[u8], usize) {
    let mut encoded = [0; 4];
    let content = content.encode_utf8(&mut encoded).as_bytes();
    let mut rest = bytes;
    let mut stripped = 0;
    while stripped < most {
        let Some(shorter) = rest.strip_prefix(content) else { break };
        rest = shorter;
        stripped += 1;
    }
    (rest, stripped)
}
