//! A chat's prompt: rendered and tokenized beside the reactor.

use headrace_text::TokenizerError;
use headrace_text::chat::{ChatPrompt, Conversation, Ending, TemplateError};
use jiff::ZonedDateTime;

use super::body::{ChatInput, Message};
use crate::error::ApiError;
use crate::invalid::Invalid;
use crate::state::ServerState;
use crate::tokenization::LONG_BYTES;

/// Renders the chat and tokenizes the text, unless `fits` refuses it for the tokens that it has at least, as far as that
/// is known.
pub(crate) async fn prompt(
    state: &ServerState,
    chat: ChatInput,
    fits: impl FnOnce(Option<usize>) -> Result<(), Invalid> + Send + 'static,
) -> Result<ChatPrompt, ApiError> {
    let bytes = chat.bytes();
    let conversation = conversation(chat)?;
    let shared = state.clone();
    let make = move || {
        let prompts = &shared.chat_prompts;
        let rendered = prompts.render(conversation, &ZonedDateTime::now().datetime())?;
        let (bytes, least) = prompts.size(&rendered);
        fits(Some(least).filter(|&least| bytes > LONG_BYTES && least > 0))?;
        prompts
            .encode(rendered)
            .map_err(|error: TokenizerError| Invalid::Tokenizer { reason: error.to_string() }.into())
    };
    state.tokenization.run(bytes, make).await?
}

fn conversation(chat: ChatInput) -> Result<Conversation, ApiError> {
    if chat.messages.is_empty() {
        return Err(Invalid::NoMessages.into());
    }
    let ending = ending(&chat)?;
    let callable = chat.tool_choice.is_none_or(|choice| choice != "none");
    Ok(Conversation {
        messages: chat.messages.into_iter().map(Message::into_inner).collect(),
        // What the model may not call it does not see, as in TGI; and no tools are none.
        tools: chat.tools.filter(|tools| callable && !tools.is_empty()),
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
