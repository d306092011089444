//! `POST /invocations`, which SageMaker calls: any body of `POST /`, `/v1/chat/completions` or `/v1/completions`, told
//! apart by what is to be continued. Answers are those of these routes; errors are native ones.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use crate::call::Call;
use crate::error::ApiError;
use crate::openai::chat::{self, ChatChoice};
use crate::openai::chat_body::ChatBody;
use crate::openai::completion::{self, CompletionChoice};
use crate::openai::completion_body::CompletionBody;
use crate::openai::envelope::Enveloped;
use crate::openapi::GenerateErrors;
use crate::parameters::CompatBody;
use crate::payload::{FromJson, Payload};
use crate::request_id::Caller;
use crate::routes::compat;
use crate::sse::SentEvent;
use crate::state::ServerState;
use crate::terms::HeaderTerms;
use crate::wire::Generated;

/// Answers as `POST /`, `/v1/chat/completions` or `/v1/completions`, whichever the body is of.
#[utoipa::path(
    post, path = "/invocations", tag = "Text generation", request_body = Invocation,
    responses(
        (status = OK, description = "The answer of the route that the body is of, or its events", content(
            (InvocationAnswer = "application/json"), (SentEvent = "text/event-stream"),
        )),
        GenerateErrors,
    )
)]
pub(crate) async fn invocations(
    State(state): State<ServerState>,
    caller: Caller,
    terms: HeaderTerms,
    Payload { body, received }: Payload<Invocation>,
) -> Response {
    let call = Call::begin(state, caller, terms, received);
    match body {
        Invocation::Generate(body) => compat::answer(call, *body).await,
        Invocation::Chat(body) => chat::answer(call, *body).await,
        Invocation::Completion(body) => completion::answer(call, *body).await,
    }
}

/// A body of one of three routes.
#[derive(ToSchema)]
#[schema(as = SagemakerRequest)]
#[serde(untagged)]
pub(crate) enum Invocation {
    Generate(Box<CompatBody>),
    Chat(Box<ChatBody>),
    Completion(Box<CompletionBody>),
}

/// An answer of one of three routes.
#[derive(ToSchema)]
#[schema(as = SagemakerResponse)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
enum InvocationAnswer<'a> {
    Generate(Vec<Generated<'a>>),
    Chat(Enveloped<'a, ChatChoice>),
    Completion(Enveloped<'a, CompletionChoice<'a>>),
}

/// The fields that tell.
#[derive(Deserialize)]
struct Kind {
    inputs: Option<IgnoredAny>,
    messages: Option<IgnoredAny>,
    prompt: Option<IgnoredAny>,
}

impl FromJson for Invocation {
    fn from_json(bytes: &[u8]) -> Result<Self, ApiError> {
        match Kind::from_json(bytes)? {
            Kind { inputs: Some(_), .. } => CompatBody::from_json(bytes).map(Box::new).map(Self::Generate),
            Kind { messages: Some(_), .. } => ChatBody::from_json(bytes).map(Box::new).map(Self::Chat),
            Kind { prompt: Some(_), .. } => CompletionBody::from_json(bytes).map(Box::new).map(Self::Completion),
            Kind { .. } => Err(ApiError::WrongType { path: "body".into(), reason: NOTHING_TO_CONTINUE.into() }),
        }
    }
}

const NOTHING_TO_CONTINUE: &str = "it has none of the fields `inputs`, `messages` and `prompt`; send one of them";
