//! Why there is no tokenizer, or no tokens.

use std::path::PathBuf;

/// One line each, with the file's path where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    #[error("{} does not exist; a model directory needs the tokenizer.json that was published with it", path.display())]
    Missing { path: PathBuf },
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("{origin} is not a valid tokenizer: {reason}; fetch or convert it again")]
    Malformed { origin: String, reason: String },
    #[error("cannot tokenize the text: {reason}")]
    Encode { reason: String },
    #[error("cannot turn the tokens into text: {reason}")]
    Decode { reason: String },
}

/// Errors of libraries may span lines; ours never do.
pub(crate) fn one_line(error: impl std::fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
