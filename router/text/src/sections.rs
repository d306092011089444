//! Where a text may be cut so that its parts, tokenized one by one, give the tokens of the whole.
//!
//! A tokenizer takes its added tokens out of a text first; everything after works on what is between them. So a part that
//! begins with an added token depends on nothing before it, if that token keeps to its own text: it must not take white
//! space on its left, nor depend on the characters around it, nor be looked for in normalized text.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

/// Finds the places.
pub struct Sections {
    /// Finds added tokens as the tokenizer does.
    tokens: AhoCorasick,
    /// By pattern: whether a text may be cut before it.
    cuts: Box<[bool]>,
}

impl Sections {
    /// `None` for a tokenizer without added tokens, or with too many to look for.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        let added = tokenizer.get_added_tokens_decoder();
        let verbatim = added.values().filter(|token| !token.normalized && !token.content.is_empty());
        let (texts, cuts): (Vec<&str>, Vec<bool>) =
            verbatim.map(|token| (token.content.as_str(), !token.lstrip && !token.single_word)).unzip();
        if !cuts.contains(&true) {
            return None;
        }
        let tokens = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts).ok()?;
        Some(Self { tokens, cuts: cuts.into() })
    }

    /// The parts of `text`, in order; together they are all of it.
    pub fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut sections = Vec::new();
        let mut start = 0;
        for found in self.tokens.find_iter(text) {
            if self.cuts[found.pattern().as_usize()] && found.start() > start {
                sections.push(start..found.start());
                start = found.start();
            }
        }
        if start < text.len() {
            sections.push(start..text.len());
        }
        sections
    }
}
