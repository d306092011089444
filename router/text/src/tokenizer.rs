//! Text → ids and back, from a model's `tokenizer.json`.

use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{TokenizerError, one_line};
use crate::least;
use crate::pieces::Pieces;

/// A model's tokenizer. Share it by `Arc`: nothing in it changes after loading.
///
/// Truncation and padding that the file may ask for are ignored: lengths are the server's business.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    pieces: Option<Pieces>,
    /// Bytes; `None`: nobody knows.
    longest_token: Option<NonZeroUsize>,
    /// By id.
    special: Box<[bool]>,
    sha256: String,
}

/// A text's tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    pub ids: Vec<u32>,
    /// Where each token lies in the text, in bytes: `text[start..end]`. Tokens that share a character all name the whole
    /// of it; a special token that is not in the text has an empty range.
    pub offsets: Vec<(usize, usize)>,
}

impl Tokenizer {
    /// Reads `dir/tokenizer.json`.
    pub fn from_dir(dir: &Path) -> Result<Self, TokenizerError> {
        let path = dir.join("tokenizer.json");
        let json = std::fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => TokenizerError::Missing { path: path.clone() },
            _ => TokenizerError::Unreadable { path: path.clone(), reason: one_line(error) },
        })?;
        Self::parse(&json, || path.display().to_string())
    }

    /// Reads the contents of a `tokenizer.json`.
    pub fn from_bytes(json: &[u8]) -> Result<Self, TokenizerError> {
        Self::parse(json, || "the tokenizer's JSON".to_owned())
    }

    fn parse(json: &[u8], origin: impl Fn() -> String) -> Result<Self, TokenizerError> {
        let malformed = |reason: String| TokenizerError::Malformed { origin: origin(), reason };
        let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(|error| malformed(one_line(error)))?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| malformed(one_line(error)))?;

        let Some(last) = inner.get_vocab(true).into_values().max() else {
            return Err(malformed("its vocabulary is empty".to_owned()));
        };
        if last >= MAX_VOCAB {
            return Err(malformed(format!("token id {last} is not below {MAX_VOCAB}")));
        }
        let added = inner.get_added_vocabulary();
        let special = (0..=last).map(|id| inner.id_to_token(id).is_some_and(|token| added.is_special_token(&token)));
        let special = special.collect();
        let pieces = Pieces::of(&inner, last + 1);
        let longest_token = least::longest_token(&inner, pieces.as_ref(), last + 1);
        let sha256 = Sha256::digest(json).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { inner, pieces, longest_token, special, sha256 })
    }

    /// Tokens of `text`; with `add_special_tokens` also those that the model expects around a text.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Encoding, TokenizerError> {
        let encoding = self.inner.encode(text, add_special_tokens);
        let encoding = encoding.map_err(|error| TokenizerError::Encode { reason: one_line(error) })?;
        Ok(Encoding { ids: encoding.get_ids().to_vec(), offsets: encoding.get_offsets().to_vec() })
    }

    /// Of the JSON that it was read from, byte for byte; hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// A text of so many bytes has at least this many tokens, special ones around it not counted: known without a look at
    /// it, so that a text which is much too long need not be tokenized. 0 where this tokenizer promises nothing.
    pub fn least_tokens(&self, bytes: usize) -> usize {
        self.longest_token.map_or(0, |longest| bytes.div_ceil(longest.get()))
    }

    /// Text of `ids` as a whole. For an answer that is still growing, see [`Detokenizer`](crate::Detokenizer).
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, TokenizerError> {
        let text = self.inner.decode(ids, skip_special_tokens);
        text.map_err(|error| TokenizerError::Decode { reason: one_line(error) })
    }

    /// Text of one token for people to read: special tokens included, U+FFFD for part of a character, empty for an id
    /// outside the vocabulary.
    pub fn token_text(&self, id: u32) -> String {
        match &self.pieces {
            Some(pieces) if pieces.lead == crate::pieces::Lead::Keep => {
                String::from_utf8_lossy(pieces.get(id)).into_owned()
            }
            _ => self.inner.decode(&[id], false).unwrap_or_default(),
        }
    }

    /// What a token adds to a text that it is not the first of: part of a character, too. Empty for an id outside the
    /// vocabulary.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        match &self.pieces {
            Some(pieces) => pieces.get(id).to_vec(),
            None => self.token_text(id).into_bytes(),
        }
    }

    /// A token that steers the model and is no part of an answer's text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// One more than the highest token id.
    pub fn vocab_size(&self) -> u32 {
        self.special.len() as u32
    }

    /// Id of a vocabulary entry, spelt as the vocabulary spells it.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.inner.token_to_id(text)
    }

    /// The tokenizer itself, to make another of.
    pub(crate) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    pub(crate) fn pieces(&self) -> Option<&Pieces> {
        self.pieces.as_ref()
    }

    /// A token as the vocabulary spells it.
    pub(crate) fn entry(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }
}

/// No vocabulary comes near it; a broken file must not make us allocate tables for 2³² ids.
const MAX_VOCAB: u32 = 1 << 24;
