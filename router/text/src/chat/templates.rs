//! The templates of a model, and the special tokens that they name.

use std::collections::BTreeMap;

use jiff::civil::DateTime;
use serde_json::{Map, Value as Json};

use super::conversation::Conversation;
use super::error::TemplateError;
use super::template::ChatTemplate;

/// The templates of a model by name; there may be none.
#[derive(Default)]
pub struct ChatTemplates {
    templates: BTreeMap<String, ChatTemplate>,
    special_tokens: Map<String, Json>,
}

impl ChatTemplates {
    /// `special_tokens`: variables of every template, such as `bos_token`.
    pub fn new(templates: BTreeMap<String, ChatTemplate>, special_tokens: Map<String, Json>) -> Self {
        Self { templates, special_tokens }
    }

    /// The prompt's text.
    pub fn render(&self, conversation: &Conversation, now: &DateTime) -> Result<String, TemplateError> {
        self.choose(conversation)?.render(conversation, &self.special_tokens, now)
    }

    /// As transformers: the one that was named; with tools the one for tools; else the usual one.
    fn choose(&self, conversation: &Conversation) -> Result<&ChatTemplate, TemplateError> {
        if let Some(name) = &conversation.template {
            let known = || self.templates.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            return self
                .templates
                .get(name)
                .ok_or_else(|| TemplateError::Unknown { name: name.clone(), known: known() });
        }
        let for_tools = conversation.tools.as_ref().and_then(|_| self.templates.get(TOOL_USE));
        for_tools.or_else(|| self.templates.get(DEFAULT)).ok_or(TemplateError::NotFound)
    }
}

/// The template of chats that ask for nothing else.
pub const DEFAULT: &str = "default";
/// The template of chats with tools, where a model has one of its own for them.
pub const TOOL_USE: &str = "tool_use";
