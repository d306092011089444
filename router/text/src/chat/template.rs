//! One template, parsed.

use jiff::civil::DateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::{Map, Value as Json};

use super::conversation::{Conversation, Ending};
use super::error::TemplateError;
use crate::error::one_line;

/// A chat template that is ready to render.
pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Reads a template's text.
    pub fn parse(source: &str) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| TemplateError::Syntax { reason: one_line(error) })?);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", raise_exception);
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(|error| TemplateError::Syntax { reason: one_line(error) })?;
        Ok(Self { environment })
    }

    /// The prompt's text. `special_tokens` are variables by their names (`bos_token`, …); `now` is local time.
    pub fn render(
        &self,
        conversation: &Conversation,
        special_tokens: &Map<String, Json>,
        now: &DateTime,
    ) -> Result<String, TemplateError> {
        let mut conversation = conversation.clone();
        if let Ending::Continue { .. } = conversation.ending {
            mark_end(&mut conversation)?;
        }
        let template = self.environment.get_template(NAME).map_err(|error| failed(&error))?;
        let now = *now;
        let strftime_now = Value::from_function(move |format: &str| now.strftime(format).to_string());
        let mut variables: Vec<(String, Value)> = vec![("strftime_now".to_owned(), strftime_now)];
        let given = special_tokens.iter().chain(&conversation.kwargs);
        variables.extend(given.map(|(name, value)| (name.clone(), from_json(value))));
        let messages = conversation.messages.into_iter().map(|message| from_json(&Json::Object(message)));
        variables.push(("messages".to_owned(), messages.collect::<Vec<_>>().into()));
        variables.push(("tools".to_owned(), list(conversation.tools.as_deref())));
        variables.push(("documents".to_owned(), list(conversation.documents.as_deref())));
        let open = conversation.ending == Ending::GenerationPrompt;
        variables.push(("add_generation_prompt".to_owned(), open.into()));
        let text = template.render(Value::from_pairs(variables)).map_err(|error| failed(&error))?;
        match conversation.ending {
            Ending::Continue { trim } => cut_at_mark(text, trim),
            Ending::GenerationPrompt | Ending::Complete => Ok(text),
        }
    }
}

fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(fields) => Value::from_pairs(fields.iter().map(|(name, value)| (name.as_str(), from_json(value)))),
    }
}

fn list(items: Option<&[Json]>) -> Value {
    items.map_or(Value::from(()), |items| items.iter().map(from_json).collect::<Vec<_>>().into())
}

fn raise_exception(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message).with_source(Refusal))
}

/// Tells the template's own refusal from other errors.
#[derive(Debug, thiserror::Error)]
#[error("the template refuses")]
struct Refusal;

fn failed(error: &minijinja::Error) -> TemplateError {
    let source = std::error::Error::source(error);
    if source.is_some_and(|source| source.is::<Refusal>()) {
        return TemplateError::Raised { message: one_line(error.detail().unwrap_or_default()) };
    }
    match error.kind() {
        ErrorKind::OutOfFuel => TemplateError::TooSlow { limit: FUEL },
        _ => TemplateError::Failed { reason: one_line(error) },
    }
}

/// Puts a mark behind the text of the last message.
fn mark_end(conversation: &mut Conversation) -> Result<(), TemplateError> {
    let last = conversation.messages.last_mut();
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

const MARK: &str = "\u{e000}the message goes on here\u{e000}";

const NAME: &str = "chat_template";

/// Steps that one rendering may take; strings cost more the longer they are.
const FUEL: u64 = 4_000_000;
