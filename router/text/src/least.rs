//! How few tokens a text can have, told from its length alone.
//!
//! A tokenizer that loses nothing writes every byte of a text into some token: then there are at least as many tokens as
//! the text has bytes, divided by those of the longest token. Where something may be lost, nothing can be said: in a
//! normalizer that folds characters, a pre-tokenizer that drops spaces, a model that calls whole words unknown.

use std::num::NonZeroUsize;

use serde::Deserialize;
use tokenizers::models::ModelWrapper;
use tokenizers::{AddedToken, Tokenizer};

use crate::pieces::Pieces;

/// Bytes of a text that one token stands for, at most; `None`: any number.
pub(crate) fn longest_token(tokenizer: &Tokenizer, pieces: Option<&Pieces>, vocab_size: u32) -> Option<NonZeroUsize> {
    let pieces = pieces.filter(|pieces| loses_nothing(tokenizer, pieces, vocab_size))?;
    let bytes = |id| match pieces.byte_level {
        true => pieces.get(id).len(),
        // A text's own `▁` is as long as it is spelt, though as a space it is one byte.
        false => tokenizer.id_to_token(id).map_or(0, |token| token.len()),
    };
    // Found in the text as they are spelt, whatever they spell.
    let added = tokenizer.get_added_tokens_decoder();
    let longest = (0..vocab_size).map(bytes).chain(added.values().map(|token| token.content.len())).max();
    NonZeroUsize::new(longest?)
}

fn loses_nothing(tokenizer: &Tokenizer, pieces: &Pieces, vocab_size: u32) -> bool {
    let ModelWrapper::BPE(model) = tokenizer.get_model() else { return false };
    let normalizer = tokenizer.get_normalizer().map(serde_json::to_value);
    let pre_tokenizer = tokenizer.get_pre_tokenizer().map(serde_json::to_value);
    let normalizer = normalizer.map(|json| json.and_then(serde_json::from_value::<Normalizer>));
    let pre_tokenizer = pre_tokenizer.map(|json| json.and_then(serde_json::from_value::<PreTokenizer>));
    let keeps_added = |token: &AddedToken| !token.lstrip && !token.rstrip;
    (pieces.byte_level || model.byte_fallback)
        && spells_every_byte(pieces, vocab_size)
        && normalizer.is_none_or(|step| step.is_ok_and(|step| step.loses_nothing()))
        && pre_tokenizer.is_none_or(|step| step.is_ok_and(|step| step.loses_nothing()))
        && tokenizer.get_added_tokens_decoder().values().all(keeps_added)
}

/// Then nothing is unknown to it.
fn spells_every_byte(pieces: &Pieces, vocab_size: u32) -> bool {
    let mut spelt = [false; 256];
    for id in 0..vocab_size {
        if let &[byte] = pieces.get(id) {
            spelt[usize::from(byte)] = true;
        }
    }
    spelt.iter().all(|&spelt| spelt)
}

/// The normalizers that only add, or write a space in another way.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Normalizer {
    Sequence {
        normalizers: Vec<Normalizer>,
    },
    Prepend {},
    Replace {
        pattern: Pattern,
        content: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
enum Pattern {
    String(String),
    Regex(#[allow(dead_code, reason = "only its presence matters")] String),
}

impl Normalizer {
    fn loses_nothing(&self) -> bool {
        match self {
            Self::Sequence { normalizers } => normalizers.iter().all(Self::loses_nothing),
            Self::Prepend {} => true,
            Self::Replace { pattern: Pattern::String(from), content } => from == " " && content == "▁",
            Self::Replace { .. } | Self::Other => false,
        }
    }
}

/// The pre-tokenizers that only cut.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum PreTokenizer {
    Sequence {
        pretokenizers: Vec<PreTokenizer>,
    },
    ByteLevel {},
    Digits {},
    Metaspace {},
    Split {
        behavior: String,
    },
    #[serde(other)]
    Other,
}

impl PreTokenizer {
    fn loses_nothing(&self) -> bool {
        match self {
            Self::Sequence { pretokenizers } => pretokenizers.iter().all(Self::loses_nothing),
            Self::ByteLevel {} | Self::Digits {} | Self::Metaspace {} => true,
            Self::Split { behavior } => behavior != "Removed",
            Self::Other => false,
        }
    }
}
