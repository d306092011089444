//! `POST /v1/completions`: what its answers and chunks say.

use std::borrow::Cow;

use axum::extract::State;
use axum::response::Response;
use headrace_text::Tokenizer;
use serde::Serialize;
use utoipa::ToSchema;

use super::body::{Likely, Reports};
use super::completion_body::CompletionBody;
use super::envelope::Enveloped;
use super::errors::OpenAiErrors;
use super::logprobs::{CompletionLogprobs, Lists};
use super::respond::{Asked, Dialect, Piece, Said, respond};
use crate::admission::Admitted;
use crate::call::Call;
use crate::payload::Payload;
use crate::request_id::Caller;
use crate::sse::SentEvent;
use crate::state::{Limits, ServerState};
use crate::terms::HeaderTerms;

/// Continues a prompt, or several.
#[utoipa::path(
    post, path = "/v1/completions", tag = "OpenAI", request_body = CompletionBody,
    responses(
        (status = OK, description = "The answer; or with `stream` server-sent events: the data of each is a chunk of the \
            same shape, or an `OpenAiErrorResponse`, and the last is `[DONE]`",
            content((Enveloped<CompletionChoice> = "application/json"), (SentEvent = "text/event-stream"))),
        OpenAiErrors,
    )
)]
pub(crate) async fn completions(
    State(state): State<ServerState>,
    caller: Caller,
    terms: HeaderTerms,
    Payload { body, received }: Payload<CompletionBody>,
) -> Response {
    let call = Call::begin(state, caller, terms, received);
    answer(call, body).await
}

/// Answers a completion of any route.
pub(crate) async fn answer(mut call: Call, body: CompletionBody) -> Response {
    let CompletionBody { mut common, own, later } = body;
    let checked = later.refuse().and_then(|()| own.check(call.state()));
    if let Err(error) = checked {
        return call.refuse(error);
    }
    let hides_answer = own.echoes() && common.max_new_tokens() == Some(0);
    if hides_answer {
        // Native routes refuse a length of 0.
        common.forget_max_new_tokens();
    }
    let reports = own.reports();
    let dialect = Completions { reports, echo: own.echoes(), offsets: Vec::new() };
    let (prompts, best_of) = (own.prompt.into_list(), own.best_of);
    respond(call, Asked { common, prompts, best_of, reports, hides_answer, dialect }).await
}

/// How this route says it.
struct Completions {
    reports: Reports,
    /// A choice's text begins with the prompt.
    echo: bool,
    /// Characters of each choice's text so far.
    offsets: Vec<usize>,
}

/// A choice of an answer, or what a chunk adds to one.
#[derive(Serialize, ToSchema)]
pub(crate) struct CompletionChoice<'a> {
    /// Choice j of prompt i of a list has the index i × n + j.
    index: u32,
    text: Cow<'a, str>,
    logprobs: Option<CompletionLogprobs>,
    /// `stop` or `length`; null while the choice goes on.
    finish_reason: Option<&'static str>,
}

impl Dialect for Completions {
    const ID: &'static str = "cmpl";
    const ANSWER: &'static str = "text_completion";
    const CHUNK: &'static str = "text_completion";
    /// TGI's clients look for it there.
    const USAGE_WITH_LAST: bool = true;
    type Choice = CompletionChoice<'static>;
    type Delta<'a> = CompletionChoice<'a>;

    fn likely(limits: &Limits) -> Likely {
        Likely { field: "logprobs", max: limits.max_completion_logprobs }
    }

    fn choice(&self, said: &Said<'_>) -> CompletionChoice<'static> {
        let mut text = self.echoed(said.prompt, said.tokenizer);
        text.push_str(&said.answer.finished.text);
        let logprobs = self.reports.logprobs.then(|| {
            let mut lists = Lists { tokenizer: said.tokenizer, top: self.reports.top > 0, offset: &mut 0 };
            let mut logprobs = lists.begin();
            if self.echo {
                lists.add_prompt(&said.prompt.tokens, said.prompt_logprobs, &mut logprobs);
            }
            said.answer.tokens.iter().for_each(|token| lists.add(token, &mut logprobs));
            logprobs
        });
        CompletionChoice { index: said.index, text: text.into(), logprobs, finish_reason: Some(said.finish_reason) }
    }

    fn delta<'a>(&mut self, piece: &Piece<'a>) -> CompletionChoice<'a> {
        let echoes = self.echo && piece.first;
        let added = piece.token.map_or("", |token| token.text.as_str());
        let text = match echoes {
            true => (self.echoed(piece.prompt, piece.tokenizer) + added).into(),
            false => Cow::Borrowed(added),
        };
        let logprobs = self.reports.logprobs.then(|| {
            let place = piece.index as usize;
            self.offsets.resize(self.offsets.len().max(place + 1), 0);
            let offset = &mut self.offsets[place];
            let mut lists = Lists { tokenizer: piece.tokenizer, top: self.reports.top > 0, offset };
            let mut logprobs = lists.begin();
            if echoes {
                lists.add_prompt(&piece.prompt.tokens, piece.prompt_logprobs, &mut logprobs);
            }
            piece.token.iter().for_each(|token| lists.add(token, &mut logprobs));
            logprobs
        });
        CompletionChoice { index: piece.index, text, logprobs, finish_reason: piece.finish_reason }
    }
}

impl Completions {
    fn echoed(&self, prompt: &Admitted, tokenizer: &Tokenizer) -> String {
        match self.echo {
            false => String::new(),
            true if prompt.text.is_empty() => tokenizer.decode(&prompt.tokens, false).unwrap_or_default(),
            true => prompt.text.clone(),
        }
    }
}
