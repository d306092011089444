//! What `/v1/chat/completions` and `/chat_tokenize` have in common: a chat as clients send it, and its prompt.

mod body;
mod prompt;

pub(crate) use body::ChatInput;
pub(crate) use prompt::prompt;
