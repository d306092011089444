//! Token ids and text: the only place that knows how one becomes the other.
//!
//! - [`Tokenizer`]: text → ids and back, from a `tokenizer.json`.
//! - [`Detokenizer`]: one answer's ids → text as they come, never half a character, O(1) per token.
//! - [`StopMatcher`]: finds the texts that end an answer, also across tokens.
//! - [`chat`]: from messages to the text of a prompt.
//!
//! Pure: no async, no clock; only [`Tokenizer::from_dir`] reads a file.

pub mod chat;
mod detokenizer;
mod error;
mod least;
mod pieces;
mod sections;
mod stop;
mod tokenizer;
mod utf8;
mod window;

pub use detokenizer::{Detokenizer, SpecialTokens};
pub use error::TokenizerError;
pub use stop::{StopMatch, StopMatcher};
pub use tokenizer::{Encoding, Tokenizer};
