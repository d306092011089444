//! The part of a body that becomes a prompt. Nothing is checked here but types, and what a message must have.

use headrace_text::chat;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// Fields of a chat's body that its prompt is made of. Flatten it into a route's own body.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct ChatInput {
    #[schema(value_type = Vec<MessageShape>, min_items = 1)]
    pub messages: Vec<Message>,
    /// As sent: templates show them whole.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// As sent; `none` keeps the tools out of the prompt.
    #[serde(default)]
    pub tool_choice: Option<Value>,
    /// What the model is told about calling tools, after the last message.
    #[serde(default)]
    pub tool_prompt: Option<String>,
    /// Further variables of the template, such as `enable_thinking`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Default: true, unless the last message is to be continued.
    #[serde(default)]
    pub add_generation_prompt: Option<bool>,
    /// Default: true when the last message is the assistant's, as in TGI.
    #[serde(default)]
    pub continue_final_message: Option<bool>,
    /// For templates that show sources.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Object>>)]
    pub documents: Option<Vec<Value>>,
    /// Name of one of the model's templates.
    #[serde(default)]
    pub chat_template: Option<String>,
}

/// A message as it was sent, fields in their order: templates read some that no API names. It has a role, and content
/// unless it calls something. What an assistant refused is text like any other: templates know no more of it.
#[derive(Clone, Debug)]
pub(crate) struct Message(chat::Message);

/// A message: a role, and content unless it calls tools or refuses. Templates may read further fields.
#[derive(ToSchema)]
#[schema(as = Message)]
#[expect(dead_code, reason = "only its schema is of use")]
struct MessageShape {
    #[schema(example = "user", min_length = 1)]
    role: String,
    content: Option<Content>,
    name: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    tool_calls: Option<Vec<Value>>,
    tool_call_id: Option<String>,
    /// OpenAI's older form of `tool_calls`.
    #[schema(value_type = Option<Object>)]
    function_call: Option<Value>,
    /// Shown to the model where there is no content.
    refusal: Option<String>,
}

#[derive(ToSchema)]
#[serde(untagged)]
#[schema(as = MessageContent)]
#[expect(dead_code, reason = "only its schema is of use")]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is of use")]
enum ContentPart {
    Text { text: String },
    Refusal { refusal: String },
}

impl ChatInput {
    /// About how much text there is.
    pub fn bytes(&self) -> usize {
        let messages = self.messages.iter().flat_map(|message| message.0.values());
        let others = self.tools.iter().chain(&self.documents).flatten();
        let variables = self.chat_template_kwargs.iter().flat_map(Map::values);
        messages.chain(others).chain(variables).map(bytes).sum()
    }
}

fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

impl Message {
    pub fn role(&self) -> &str {
        self.0.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn into_inner(self) -> chat::Message {
        self.0
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut message = Map::deserialize(deserializer)?;
        // What the SDKs write for a field that is not set.
        for field in ["tool_calls", "function_call", "refusal", "audio", "name", "tool_call_id"] {
            if message.get(field).is_some_and(Value::is_null) {
                message.shift_remove(field);
            }
        }
        check(&message).map_err(Error::custom)?;
        show_refusals(&mut message);
        Ok(Self(message))
    }
}

/// A refusal is written where a template looks for text.
fn show_refusals(message: &mut chat::Message) {
    match message.get_mut("content") {
        Some(Value::Array(parts)) => parts.iter_mut().for_each(show_refusal),
        Some(Value::String(_)) => {}
        _ => {
            if let Some(refusal @ Value::String(_)) = message.get("refusal").cloned() {
                message.insert("content".to_owned(), refusal);
            }
        }
    }
}

fn show_refusal(part: &mut Value) {
    if part.get("type").is_some_and(|kind| kind == "refusal") {
        *part = json!({"type": "text", "text": part.get("refusal")});
    }
}

fn check(message: &chat::Message) -> Result<(), String> {
    match message.get("role") {
        Some(Value::String(role)) if !role.is_empty() => {}
        Some(_) => return Err("`role` must be a text, such as \"user\"".into()),
        None => return Err("missing field `role`".into()),
    }
    match message.get("content") {
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) => parts.iter().try_for_each(check_part),
        None | Some(Value::Null) if needs_no_content(message) => Ok(()),
        None => Err("missing field `content`".into()),
        Some(Value::Null) => Err("`content` may be null only beside `tool_calls`, `function_call` or `refusal`".into()),
        Some(_) => Err("`content` must be a text or a list of parts".into()),
    }
}

fn needs_no_content(message: &chat::Message) -> bool {
    let calls = ["tool_calls", "function_call"].iter().any(|field| message.contains_key(*field));
    calls || message.get("refusal").is_some_and(Value::is_string)
}

fn check_part(part: &Value) -> Result<(), String> {
    match part.get("type").and_then(Value::as_str) {
        Some("text") if part.get("text").is_some_and(Value::is_string) => Ok(()),
        Some("text") => Err("a part of type \"text\" must have a `text`".into()),
        Some("refusal") if part.get("refusal").is_some_and(Value::is_string) => Ok(()),
        Some("refusal") => Err("a part of type \"refusal\" must have a `refusal`".into()),
        Some(other) => Err(format!("a part of type {other:?} is not supported: this server reads text only")),
        None => Err("a part of `content` must be an object with a `type`".into()),
    }
}
