//! Chat templates: from messages to the text of a prompt, as transformers renders it.
//!
//! - [`ChatPrompts`]: renders and tokenizes; the one that servers use.
//! - [`ChatTemplates`]: the templates of a model and the special tokens that they name.
//! - [`Conversation`]: what one request asks to be rendered.
//! - [`ChatTemplate`]: one template, parsed.
//! - [`TokenizerConfig`]: what a `tokenizer_config.json` says of chats.

mod cache;
mod clock;
mod conversation;
mod error;
mod guard;
mod jinja;
mod messages;
mod prompts;
mod template;
mod templates;
mod tokenizer_config;

pub use conversation::{Conversation, Ending, Message};
pub use error::TemplateError;
pub use prompts::{ChatPrompt, ChatPrompts, PromptError, RenderedChat};
pub use template::ChatTemplate;
pub use templates::{ChatTemplates, DEFAULT, TOOL_USE};
pub use tokenizer_config::TokenizerConfig;
