//! `POST /v1/chat/completions`: what its answers and chunks say.

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::body::{Likely, Reports};
use super::chat_body::ChatBody;
use super::envelope::Enveloped;
use super::errors::OpenAiErrors;
use super::logprobs::ChatLogprobs;
use super::respond::{self, Asked, Dialect, Piece, Said, respond};
use crate::admission::Prompt;
use crate::call::Call;
use crate::error::ApiError;
use crate::payload::Payload;
use crate::request_id::Caller;
use crate::sse::SentEvent;
use crate::state::{Limits, ServerState};
use crate::terms::HeaderTerms;

/// Answers the last message of a chat.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "OpenAI", request_body = ChatBody,
    responses(
        (status = OK, description = "The answer; or with `stream` server-sent events: the data of each is a \
            `ChatChunk`, or an `OpenAiErrorResponse`, and the last is `[DONE]`",
            content((Enveloped<ChatChoice> = "application/json"), (SentEvent = "text/event-stream"))),
        OpenAiErrors,
    )
)]
pub(crate) async fn chat_completions(
    State(state): State<ServerState>,
    caller: Caller,
    terms: HeaderTerms,
    Payload { body, received }: Payload<ChatBody>,
) -> Response {
    let call = Call::begin(state, caller, terms, received);
    answer(call, body).await
}

/// Answers a chat of any route.
pub(crate) async fn answer(mut call: Call, body: ChatBody) -> Response {
    match asked(body) {
        Ok(asked) => respond(call, asked).await,
        Err(error) => call.refuse(error),
    }
}

/// The text of its answer and nothing else.
pub(crate) async fn text(call: &mut Call, body: ChatBody) -> Result<String, ApiError> {
    respond::text(call, asked(body)?).await
}

fn asked(body: ChatBody) -> Result<Asked<Chats>, ApiError> {
    let ChatBody { common, own, input, later } = body;
    later.refuse()?;
    let reports = own.reports();
    let (prompts, dialect) = (vec![Prompt::Chat(Box::new(input))], Chats { reports });
    Ok(Asked { common, prompts, best_of: None, reports, hides_answer: false, dialect })
}

/// How this route says it.
struct Chats {
    reports: Reports,
}

/// A choice of an answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatChoice {
    index: u32,
    message: AnswerMessage,
    logprobs: Option<ChatLogprobs>,
    /// `stop` or `length`.
    finish_reason: &'static str,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct AnswerMessage {
    /// `assistant`.
    role: &'static str,
    content: String,
}

/// What a chunk adds to a choice.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatDelta<'a> {
    index: u32,
    delta: Delta<'a>,
    logprobs: Option<ChatLogprobs>,
    /// `stop` or `length`; null while the choice goes on.
    finish_reason: Option<&'static str>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Delta<'a> {
    /// In a choice's first chunk only: clients put deltas together, this one too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    role: Option<&'static str>,
    content: &'a str,
}

impl Dialect for Chats {
    const ID: &'static str = "chatcmpl";
    const ANSWER: &'static str = "chat.completion";
    const CHUNK: &'static str = "chat.completion.chunk";
    const USAGE_WITH_LAST: bool = false;
    type Choice = ChatChoice;
    type Delta<'a> = ChatDelta<'a>;

    fn likely(limits: &Limits) -> Likely {
        Likely { field: "top_logprobs", max: limits.max_chat_logprobs }
    }

    fn choice(&self, said: &Said<'_>) -> ChatChoice {
        let logprobs = self.reports.logprobs.then(|| ChatLogprobs::of(&said.answer.tokens, said.tokenizer));
        ChatChoice {
            index: said.index,
            message: AnswerMessage { role: ROLE, content: said.answer.finished.text.clone() },
            logprobs,
            finish_reason: said.finish_reason,
        }
    }

    fn delta<'a>(&mut self, piece: &Piece<'a>) -> ChatDelta<'a> {
        let token = piece.token.map_or(&[][..], std::slice::from_ref);
        let text = piece.token.map_or("", |token| token.text.as_str());
        let logprobs = self.reports.logprobs.then(|| ChatLogprobs::of(token, piece.tokenizer));
        ChatDelta {
            index: piece.index,
            delta: Delta { role: piece.first.then_some(ROLE), content: text },
            logprobs,
            finish_reason: piece.finish_reason,
        }
    }
}

const ROLE: &str = "assistant";
