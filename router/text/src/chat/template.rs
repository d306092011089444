//! One template, parsed.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use minijinja::{ErrorKind, Value};
use serde_json::{Map, Value as Json};

use super::clock;
use super::conversation::{Conversation, Ending, Message};
use super::error::TemplateError;
use super::jinja::{FUEL, Program, Refusal, from_json};
use super::messages::{Form, append_text, append_tools};
use crate::error::one_line;

/// A chat template that is ready to render.
pub struct ChatTemplate {
    program: Program,
    /// It has a place for tools.
    shows_tools: bool,
    /// What it reads and does not set itself.
    needs: BTreeSet<String>,
}

impl ChatTemplate {
    /// Reads a template's text.
    pub fn parse(source: &str) -> Result<Self, TemplateError> {
        let program = Program::parse(source)?;
        let mut needs = program.variables();
        let shows_tools = needs.contains("tools");
        needs.retain({
            let assigned = program.assigned();
            move |name| !assigned.contains(name)
        });
        Ok(Self { program, shows_tools, needs })
    }

    /// The prompt's text. `special_tokens` are variables by their names (`bos_token`, …); `now` is local time.
    pub fn render(
        &self,
        conversation: &Conversation,
        special_tokens: &Map<String, Json>,
        now: &DateTime,
    ) -> Result<String, TemplateError> {
        let mut first = None;
        for form in Form::all(&conversation.messages) {
            match self.render_as(form, conversation, special_tokens, now) {
                Ok(text) if !form.is_misread(&conversation.messages, &text) => return Ok(text),
                // Another form may be the one that it expects.
                misread @ (Ok(_) | Err(TemplateError::Failed { .. } | TemplateError::MissingVariable { .. })) => {
                    first.get_or_insert(misread);
                }
                refused => return first.unwrap_or(refused),
            }
        }
        first.unwrap_or(Err(TemplateError::NotFound))
    }

    fn render_as(
        &self,
        form: Form,
        conversation: &Conversation,
        special_tokens: &Map<String, Json>,
        now: &DateTime,
    ) -> Result<String, TemplateError> {
        let mut messages = form.write(&conversation.messages);
        if let Some(tools) = conversation.tools.as_deref().filter(|tools| !tools.is_empty())
            && !self.shows_tools
        {
            append_tools(&mut messages, tools);
        }
        if let Some(prompt) = &conversation.tool_prompt {
            append_text(&mut messages, &format!("\n---\n{prompt}"));
        }
        if let Ending::Continue { .. } = conversation.ending {
            mark_end(&mut messages)?;
        }
        let variables = variables(conversation, messages, special_tokens, *now);
        let given: BTreeSet<String> = variables.iter().map(|(name, _)| name.clone()).collect();
        let rendered = self.program.render(Value::from_pairs(variables));
        let text = rendered.map_err(|error| self.failed(&error, &given))?;
        if text.len() > MAX_BYTES {
            return Err(TemplateError::TooLong { limit: MAX_BYTES });
        }
        match conversation.ending {
            Ending::Continue { trim } => cut_at_mark(text, trim),
            Ending::GenerationPrompt | Ending::Complete => Ok(text),
        }
    }

    /// Strings in its expressions: some of them are looked for in messages.
    pub(super) fn constants(&self) -> BTreeSet<String> {
        self.program.constants()
    }

    /// `given`: the variables that there were.
    fn failed(&self, error: &minijinja::Error, given: &BTreeSet<String>) -> TemplateError {
        let source = std::error::Error::source(error);
        if source.is_some_and(|source| source.is::<Refusal>()) {
            return TemplateError::Raised { message: one_line(error.detail().unwrap_or_default()) };
        }
        match error.kind() {
            ErrorKind::OutOfFuel => TemplateError::TooSlow { limit: FUEL },
            ErrorKind::UndefinedError => {
                let missing = self.needs.difference(given).map(|name| format!("`{name}`"));
                match missing.collect::<Vec<_>>().join(", ") {
                    names if names.is_empty() => TemplateError::Failed { reason: one_line(error) },
                    names => TemplateError::MissingVariable { names, reason: one_line(error) },
                }
            }
            _ => TemplateError::Failed { reason: one_line(error) },
        }
    }
}

/// What the template may read. Later ones win.
fn variables(
    conversation: &Conversation,
    messages: Vec<Message>,
    special_tokens: &Map<String, Json>,
    now: DateTime,
) -> Vec<(String, Value)> {
    let strftime_now = Value::from_function(move |format: &str| clock::format(&now, format));
    let mut variables = vec![("strftime_now".to_owned(), strftime_now)];
    let given = special_tokens.iter().chain(&conversation.kwargs);
    variables.extend(given.map(|(name, value)| (name.clone(), from_json(value))));
    let messages = messages.into_iter().map(|message| from_json(&Json::Object(message)));
    variables.push(("messages".to_owned(), messages.collect::<Vec<_>>().into()));
    for (name, given) in [("tools", &conversation.tools), ("documents", &conversation.documents)] {
        // A client may have put them among the further variables, as transformers allows.
        if given.is_some() || !conversation.kwargs.contains_key(name) {
            variables.push((name.to_owned(), list(given.as_deref())));
        }
    }
    let open = conversation.ending == Ending::GenerationPrompt;
    variables.push(("add_generation_prompt".to_owned(), open.into()));
    variables
}

fn list(items: Option<&[Json]>) -> Value {
    items.map_or(Value::from(()), |items| items.iter().map(from_json).collect::<Vec<_>>().into())
}

/// Puts a mark behind the text of the last message.
fn mark_end(messages: &mut [Message]) -> Result<(), TemplateError> {
    let last = messages.last_mut();
    let last = last.ok_or(TemplateError::Chat { reason: "there is no message to continue; send at least one" })?;
    let text = match last.get_mut("content") {
        Some(Json::String(text)) => text,
        Some(Json::Array(parts)) => {
            let text = parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
                Some(Json::String(text)) => Some(text),
                _ => None,
            });
            text.ok_or(NO_TEXT)?
        }
        _ => return Err(NO_TEXT),
    };
    text.push_str(MARK);
    text.push(' ');
    Ok(())
}

/// What comes before the mark.
fn cut_at_mark(mut text: String, trim: bool) -> Result<String, TemplateError> {
    let at = text.rfind(MARK).ok_or(TemplateError::Chat {
        reason: "the template does not show the last message, so there is nothing to continue; leave \
                 `continue_final_message` out",
    })?;
    // A template that keeps white space shows the one behind the mark too.
    let kept = text[at + MARK.len()..].starts_with(' ');
    text.truncate(at);
    if trim || !kept {
        text.truncate(text.trim_end().len());
    }
    Ok(text)
}

const NO_TEXT: TemplateError =
    TemplateError::Chat { reason: "the last message has no text to continue; leave `continue_final_message` out" };

/// Longest prompt.
const MAX_BYTES: usize = 16 << 20;

const MARK: &str = "\u{e000}the message goes on here\u{e000}";
