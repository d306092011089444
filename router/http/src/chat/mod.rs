//! What `/v1/chat/completions` and `/chat_tokenize` have in common: a chat as clients send it, and its prompt.

mod body;
mod prompt;

pub(crate) use body::ChatInput;
#[allow(unused_imports, reason = "a route may name what it gets")]
pub(crate) use prompt::{ChatPrompt, prompt};
