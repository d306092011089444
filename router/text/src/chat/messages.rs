//! Messages as templates expect them, made from what clients of OpenAI's API send.

use serde_json::{Map, Value as Json, json};

use super::conversation::Message;
use super::jinja::{from_json, python_repr};

/// How messages are written where clients and templates may differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Parts of a content become one text.
    joined: bool,
    /// Arguments of calls stay the text that they came as, for templates that put it between their own.
    text_arguments: bool,
}

impl Form {
    /// The forms to try, in this order: most templates know parts and want arguments as objects.
    pub fn all(messages: &[Message]) -> Vec<Self> {
        let parts = messages.iter().any(|message| message.get("content").is_some_and(Json::is_array));
        let texts = messages.iter().flat_map(calls).any(|call| arguments(call).is_some_and(Json::is_string));
        let mut forms = Vec::new();
        for text_arguments in [false, true] {
            for joined in [false, true] {
                if (parts || !joined) && (texts || !text_arguments) {
                    forms.push(Self { joined, text_arguments });
                }
            }
        }
        forms
    }

    /// The messages in this form. A content that is null beside calls, as OpenAI's clients send it, is empty text.
    pub fn write(self, messages: &[Message]) -> Vec<Message> {
        let mut messages = messages.to_vec();
        for message in &mut messages {
            match message.get_mut("content") {
                Some(content @ Json::Null) => *content = Json::String(String::new()),
                Some(content @ Json::Array(_)) if self.joined => *content = Json::String(joined(content)),
                _ => {}
            }
            if !self.text_arguments {
                calls_mut(message).for_each(parse_arguments);
            }
        }
        messages
    }

    /// Whether a template that was given parts took them for text: then they stand there as Python prints them. (One that
    /// shows them as JSON means to.)
    pub fn is_misread(self, messages: &[Message], text: &str) -> bool {
        let contents = messages.iter().filter_map(|message| message.get("content"));
        let mut parts = contents.filter(|content| content.as_array().is_some_and(|parts| !parts.is_empty()));
        !self.joined && parts.any(|parts| text.contains(&python_repr(&from_json(parts))))
    }
}

/// The texts of parts, nothing between them.
fn joined(content: &Json) -> String {
    let texts = content.as_array().into_iter().flatten().filter_map(|part| part.get("text")?.as_str());
    texts.collect()
}

fn calls(message: &Message) -> impl Iterator<Item = &Json> {
    message.get("tool_calls").and_then(Json::as_array).into_iter().flatten()
}

fn calls_mut(message: &mut Message) -> impl Iterator<Item = &mut Json> {
    message.get_mut("tool_calls").and_then(Json::as_array_mut).into_iter().flatten()
}

fn arguments(call: &Json) -> Option<&Json> {
    call.get("function")?.get("arguments")
}

/// Text that is a JSON object becomes it; no text is no arguments.
fn parse_arguments(call: &mut Json) {
    let Some(arguments) = call.get_mut("function").and_then(|function| function.get_mut("arguments")) else { return };
    let Json::String(text) = arguments else { return };
    match serde_json::from_str::<Map<String, Json>>(text) {
        Ok(object) => *arguments = Json::Object(object),
        Err(_) if text.trim().is_empty() => *arguments = Json::Object(Map::new()),
        Err(_) => {}
    }
}

/// Tools for a template that has no place for them: they follow the last message.
pub fn append_tools(messages: &mut [Message], tools: &[Json]) {
    let tools = Json::Array(tools.to_vec());
    append_text(messages, &format!("\n---\n{tools}\n{CALL}"));
}

/// Adds text to the last message.
pub fn append_text(messages: &mut [Message], text: &str) {
    let Some(last) = messages.last_mut() else { return };
    match last.get_mut("content") {
        Some(Json::String(content)) => content.push_str(text),
        Some(Json::Array(parts)) => parts.push(json!({"type": "text", "text": text})),
        _ => drop(last.insert("content".to_owned(), Json::String(text.trim_start().to_owned()))),
    }
}

const CALL: &str = "These functions can be called. To call one, answer with a JSON object of its \"name\" and \"parameters\", \
                    an object with a value for each parameter, and with nothing else.";
