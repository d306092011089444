//! The templates of a model, and the special tokens that they name.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::DateTime;
use serde_json::{Map, Value as Json};

use super::conversation::Conversation;
use super::error::TemplateError;
use super::template::ChatTemplate;

/// The templates of a model by name; there may be none.
#[derive(Default)]
pub struct ChatTemplates {
    templates: BTreeMap<String, ChatTemplate>,
    /// Why a template of this name cannot be used.
    broken: BTreeMap<String, TemplateError>,
    special_tokens: Map<String, Json>,
    constants: BTreeSet<String>,
}

impl ChatTemplates {
    /// Parses `sources`, which are templates by name. `special_tokens`: variables of all, such as `bos_token`.
    pub fn parse(sources: &BTreeMap<String, String>, special_tokens: Map<String, Json>) -> Self {
        let mut all = Self { special_tokens, ..Self::default() };
        for (name, source) in sources {
            match ChatTemplate::parse(source) {
                Ok(template) => {
                    all.constants.extend(template.constants());
                    all.templates.insert(name.clone(), template);
                }
                Err(error) => drop(all.broken.insert(name.clone(), error)),
            }
        }
        all
    }

    /// Names of templates that cannot be used, and why.
    pub fn broken(&self) -> impl Iterator<Item = (&str, &TemplateError)> {
        self.broken.iter().map(|(name, error)| (name.as_str(), error))
    }

    /// Strings in the templates' expressions.
    pub(super) fn constants(&self) -> &BTreeSet<String> {
        &self.constants
    }

    /// The prompt's text.
    pub fn render(&self, conversation: &Conversation, now: &DateTime) -> Result<String, TemplateError> {
        self.choose(conversation)?.render(conversation, &self.special_tokens, now)
    }

    /// As transformers: the one that was named; with tools the one for tools; else the usual one.
    fn choose(&self, conversation: &Conversation) -> Result<&ChatTemplate, TemplateError> {
        if let Some(name) = &conversation.template {
            if name.len() > LONGEST_NAME {
                return Err(TemplateError::Chat {
                    reason: "`chat_template` names one of the model's templates; its text is not taken from a request",
                });
            }
            return self.get(name)?.ok_or_else(|| TemplateError::Unknown { name: name.clone(), known: self.names() });
        }
        let for_tools = match conversation.tools {
            Some(_) => self.get(TOOL_USE)?,
            None => None,
        };
        match for_tools {
            Some(template) => Ok(template),
            None => self.get(DEFAULT)?.ok_or(TemplateError::NotFound),
        }
    }

    fn get(&self, name: &str) -> Result<Option<&ChatTemplate>, TemplateError> {
        match self.broken.get(name) {
            Some(error) => Err(error.clone()),
            None => Ok(self.templates.get(name)),
        }
    }

    fn names(&self) -> String {
        match self.templates.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>() {
            names if names.is_empty() => "none".to_owned(),
            names => names.join(", "),
        }
    }
}

/// Longer than any name; somebody sent a template.
const LONGEST_NAME: usize = 100;

/// The template of chats that ask for nothing else.
pub const DEFAULT: &str = "default";
/// The template of chats with tools, where a model has one of its own for them.
pub const TOOL_USE: &str = "tool_use";
