//! What one request asks to be rendered.

use serde_json::{Map, Value};

/// A message as its client wrote it, fields in their order: templates read more of them than any API names.
pub type Message = Map<String, Value>;

/// Messages, and what else a template may read.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    pub messages: Vec<Message>,
    /// `None`: the request names no tools.
    pub tools: Option<Vec<Value>>,
    /// What is said to the model about calling tools; `None`: nothing, where the template shows them itself.
    pub tool_prompt: Option<String>,
    pub documents: Option<Vec<Value>>,
    /// Further variables of the template; they win over special tokens, not over the fields above.
    pub kwargs: Map<String, Value>,
    pub ending: Ending,
    /// One of the model's named templates; `None`: the usual one.
    pub template: Option<String>,
}

/// Where the prompt ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Where the assistant begins to speak.
    #[default]
    GenerationPrompt,
    /// After the last message.
    Complete,
    /// Within the last message, so that the model goes on with it.
    Continue {
        /// Without white space at its end.
        trim: bool,
    },
}
