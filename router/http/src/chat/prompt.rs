//! A chat's prompt: rendered and tokenized beside the reactor.

use headrace_text::chat::{ChatPrompt, Conversation, Ending, PromptError, TemplateError};
use jiff::ZonedDateTime;

use super::body::{ChatInput, Message};
use crate::error::ApiError;
use crate::invalid::Invalid;
use crate::state::ServerState;

/// Renders the chat and tokenizes the text.
pub(crate) async fn prompt(state: &ServerState, chat: ChatInput) -> Result<ChatPrompt, ApiError> {
    let conversation = conversation(chat)?;
    let bytes = bytes(&conversation);
    let shared = state.clone();
    let make = move || shared.chat_prompts.make(conversation, &ZonedDateTime::now().datetime());
    state.tokenization.run(bytes, make).await?.map_err(|error| match error {
        PromptError::Template(error) => error.into(),
        PromptError::Tokenizer(error) => Invalid::Tokenizer { reason: error.to_string() }.into(),
    })
}

fn conversation(chat: ChatInput) -> Result<Conversation, ApiError> {
    let ending = ending(&chat)?;
    Ok(Conversation {
        messages: chat.messages.into_iter().map(Message::into_inner).collect(),
        tools: chat.tools,
        tool_prompt: chat.tool_prompt,
        documents: chat.documents,
        kwargs: chat.chat_template_kwargs.unwrap_or_default(),
        ending,
        template: chat.chat_template,
    })
}

/// TGI goes on with a last message of the assistant, and begins one otherwise.
fn ending(chat: &ChatInput) -> Result<Ending, TemplateError> {
    let assistant_last = chat.messages.last().is_some_and(|message| message.role() == "assistant");
    match (chat.continue_final_message, chat.add_generation_prompt) {
        (Some(true), Some(true)) => Err(TemplateError::Chat {
            reason: "`continue_final_message` and `add_generation_prompt` are both true; set one of them to false",
        }),
        (Some(true), _) => Ok(Ending::Continue { trim: false }),
        (None, None | Some(false)) if assistant_last => Ok(Ending::Continue { trim: true }),
        (_, Some(false)) => Ok(Ending::Complete),
        (_, None | Some(true)) => Ok(Ending::GenerationPrompt),
    }
}

/// About how much text there is.
fn bytes(conversation: &Conversation) -> usize {
    let messages = conversation.messages.iter().flat_map(|message| message.values());
    let others = conversation.tools.iter().chain(&conversation.documents).flatten();
    messages.chain(others).chain(conversation.kwargs.values()).map(value_bytes).sum()
}

fn value_bytes(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + value_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}
