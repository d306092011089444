//! From a checked body to its answer, whole or in chunks: the same for both routes, but for how each says it.

use std::sync::Arc;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, BytesMut};
use futures::future::try_join_all;
use headrace_engine::{FinishReason, Finished, GeneratedToken, Generation};
use headrace_scheduler::Tokens;
use headrace_text::Tokenizer;
use serde::Serialize;

use super::body::{Choices, Common, Likely, Reports};
use super::envelope::Envelope;
use super::errors::Route;
use super::models;
use super::usage::Usage;
use crate::admission::{Admission, Admitted, Prompt, enter, start};
use crate::best_of;
use crate::call::{Call, Summary};
use crate::collect::{Answer, collect};
use crate::error::ApiError;
use crate::frames::{Events, Frames};
use crate::headers::{self, Counts};
use crate::state::Limits;
use crate::validation::Delivery;
use crate::{json, sse};

/// What a route wants answered.
pub(crate) struct Asked<D> {
    pub common: Common,
    pub prompts: Vec<Prompt>,
    pub best_of: Option<u32>,
    pub reports: Reports,
    /// Only the prompt is of interest: answers are shown as if nothing had been generated.
    pub hides_answer: bool,
    pub dialect: D,
}

/// How a route says it.
pub(crate) trait Dialect: Send + 'static {
    /// What ids begin with.
    const ID: &'static str;
    /// Names of a whole answer and of a chunk.
    const ANSWER: &'static str;
    const CHUNK: &'static str;
    /// The last chunk of a choice says its usage, unless a chunk of its own was asked for.
    const USAGE_WITH_LAST: bool;
    type Choice: Serialize + Send;
    /// Borrows the token's text: there is one of these for each token.
    type Delta<'a>: Serialize;

    /// What it may ask of likely tokens.
    fn likely(limits: &Limits) -> Likely;
    fn choice(&self, said: &Said<'_>) -> Self::Choice;
    fn delta<'a>(&mut self, piece: &Piece<'a>) -> Self::Delta<'a>;
}

/// A whole choice.
pub(crate) struct Said<'a> {
    pub index: u32,
    pub tokenizer: &'a Tokenizer,
    pub prompt: &'a Admitted,
    pub prompt_logprobs: &'a [f32],
    pub answer: &'a Answer,
    pub finish_reason: &'static str,
}

/// A token of a choice.
pub(crate) struct Piece<'a> {
    pub index: u32,
    pub tokenizer: &'a Tokenizer,
    pub prompt: &'a Admitted,
    /// Known with the first token.
    pub prompt_logprobs: &'a [f32],
    /// The choice begins with it.
    pub first: bool,
    /// `None`: only the prompt is shown.
    pub token: Option<&'a GeneratedToken>,
    /// It ends there.
    pub finish_reason: Option<&'static str>,
}

/// Answers a request of either route.
pub(crate) async fn respond<D: Dialect>(mut call: Call, mut asked: Asked<D>) -> Response {
    let begun = match admit(&mut call, &mut asked).await {
        Ok(begun) => begun,
        Err(error) => return call.refuse(error),
    };
    match asked.common.delivery() {
        Delivery::Stream => stream(call, asked, begun).await,
        Delivery::Whole => match whole(&mut call, &asked, begun).await {
            Ok(response) => response,
            Err(error) => call.refuse(error),
        },
    }
}

/// A request whose generations run.
struct Begun {
    choices: Choices,
    envelope: Envelope,
    seed: Option<u64>,
    prompts: Vec<Admitted>,
}

async fn admit<D: Dialect>(call: &mut Call, asked: &mut Asked<D>) -> Result<Begun, ApiError> {
    let state = call.state().clone();
    let model = models::named(&state.info, asked.common.model.as_deref())?;
    let prompts = std::mem::take(&mut asked.prompts);
    let choices = asked.common.choices(asked.best_of, prompts.len(), &state.limits)?;
    let permit = enter(call, choices.best_of * prompts.len() as u32)?;
    let empty = prompts.iter().any(Prompt::is_empty);
    let likely = D::likely(&state.limits);
    let mut checked = asked.common.check(empty, choices, asked.reports, likely, &state, rand::random())?;
    if asked.hides_answer {
        checked.max_new_tokens = Some(0);
    }
    let envelope = Envelope::new(&state, D::ID, call.request_id(), model);
    let Admission { checked, prompts } = start(call, permit, prompts, checked).await?;
    Ok(Begun { choices, envelope, seed: checked.shown_seed(0), prompts })
}

/// The text of the first choice and nothing else; an answer that streams elsewhere comes at once here.
pub(crate) async fn text<D: Dialect>(call: &mut Call, mut asked: Asked<D>) -> Result<String, ApiError> {
    asked.common.stream = None;
    let mut begun = admit(call, &mut asked).await?;
    let answers = collect_all(&asked, &mut begun).await?;
    let mut summary = Summary::new(begun.seed);
    answers.iter().flatten().for_each(|answer| summary.add(&answer.finished));
    call.succeeded(&summary);
    let first = answers.into_iter().flatten().next();
    first.map(|answer| answer.finished.text).ok_or(ApiError::Incomplete)
}

/// The answers of each prompt.
async fn collect_all<D: Dialect>(asked: &Asked<D>, begun: &mut Begun) -> Result<Vec<Vec<Answer>>, ApiError> {
    let keep_tokens = asked.reports.logprobs || begun.choices.best_of > begun.choices.n;
    let generations = begun.prompts.iter_mut().map(|prompt| std::mem::take(&mut prompt.generations));
    let collecting: Vec<_> = generations.map(|generations| collect(generations, keep_tokens)).collect();
    try_join_all(collecting).await
}

async fn whole<D: Dialect>(call: &mut Call, asked: &Asked<D>, mut begun: Begun) -> Result<Response, ApiError> {
    let mut answers = collect_all(asked, &mut begun).await?;
    if asked.hides_answer {
        answers.iter_mut().flatten().for_each(|answer| {
            answer.tokens.clear();
            hide(&mut answer.finished);
        });
    }

    let mut summary = Summary::new(begun.seed);
    let mut usage = Usage::default();
    let mut choices = Vec::new();
    for (prompt, answers) in begun.prompts.iter().zip(answers) {
        answers.iter().for_each(|answer| {
            summary.add(&answer.finished);
            usage.add_answer(answer.finished.generated);
        });
        usage.add_prompt(prompt.tokens.len(), answers.first().map_or(Tokens::ZERO, |first| first.finished.cached));
        let prompt_logprobs = answers.first().map(|first| first.prompt_logprobs.clone()).unwrap_or_default();
        for answer in best_of::pick_several(answers, begun.choices.n as usize) {
            choices.push(asked.dialect.choice(&Said {
                index: choices.len() as u32,
                tokenizer: &call.state().tokenizer,
                prompt,
                prompt_logprobs: &prompt_logprobs,
                finish_reason: finish_reason(answer.finished.reason),
                answer: &answer,
            }));
        }
    }

    let times = call.succeeded(&summary);
    let counts = Counts {
        characters: characters(&begun.prompts),
        input: begun.prompts.iter().map(|prompt| prompt.tokens.len()).sum(),
        cached: summary.cached,
        generated: summary.generated,
    };
    let body = json::bytes(&begun.envelope.around(D::ANSWER, &choices, Some(usage)));
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, headers::answered(call.state(), &times, counts), body).into_response())
}

/// As if nothing had been generated.
fn hide(finished: &mut Finished) {
    finished.text.clear();
    finished.generated = Tokens::ZERO;
    finished.reason = FinishReason::Length;
}

/// The first frame decides: what fails before there is one has its status.
async fn stream<D: Dialect>(call: Call, asked: Asked<D>, mut begun: Begun) -> Response {
    let headers = headers::asked(call.state(), characters(&begun.prompts));
    let generations: Vec<Generation> =
        begun.prompts.iter_mut().flat_map(|prompt| prompt.generations.drain(..)).collect();
    let chunks = Chunks {
        route: Route::of(call.path()),
        includes_usage: asked.common.includes_usage(),
        hides_answer: asked.hides_answer,
        tokenizer: call.state().tokenizer.clone(),
        dialect: asked.dialect,
        envelope: begun.envelope,
        n: begun.choices.n as usize,
        seed: begun.seed,
        told: vec![false; generations.len()],
        prompt_logprobs: vec![Vec::new(); begun.prompts.len()],
        prompts: begun.prompts,
        usage: Usage::default(),
    };
    match Frames::new(chunks, call, generations).begin().await {
        Ok(frames) => sse::response(headers, frames),
        Err(error) => error.into_response(),
    }
}

fn characters(prompts: &[Admitted]) -> usize {
    prompts.iter().map(|prompt| prompt.text.chars().count()).sum()
}

/// A chunk per token.
struct Chunks<D> {
    route: Option<Route>,
    dialect: D,
    tokenizer: Arc<Tokenizer>,
    envelope: Envelope,
    /// Choices of each prompt.
    n: usize,
    seed: Option<u64>,
    /// Choices that have had a chunk.
    told: Vec<bool>,
    prompts: Vec<Admitted>,
    prompt_logprobs: Vec<Vec<f32>>,
    includes_usage: bool,
    hides_answer: bool,
    usage: Usage,
}

impl<D: Dialect> Chunks<D> {
    fn write(
        &mut self,
        frame: &mut BytesMut,
        of: usize,
        token: &GeneratedToken,
        finish_reason: Option<&'static str>,
        usage: Option<Usage>,
    ) {
        let delta = self.dialect.delta(&Piece {
            index: of as u32,
            tokenizer: &self.tokenizer,
            prompt: &self.prompts[of / self.n],
            prompt_logprobs: &self.prompt_logprobs[of / self.n],
            first: !std::mem::replace(&mut self.told[of], true),
            token: Some(token).filter(|_| !self.hides_answer),
            finish_reason,
        });
        sse::write_event(frame, &self.envelope.around(D::CHUNK, &[delta], usage));
    }
}

impl<D: Dialect> Events for Chunks<D> {
    fn prompt(&mut self, of: usize, logprobs: Vec<f32>) {
        self.prompt_logprobs[of / self.n] = logprobs;
    }

    fn token(&mut self, frame: &mut BytesMut, of: usize, token: &GeneratedToken) {
        self.write(frame, of, token, None, None);
    }

    fn last(&mut self, frame: &mut BytesMut, of: usize, token: &GeneratedToken, finished: &Finished) {
        let prompt_tokens = self.prompts[of / self.n].tokens.len();
        self.usage.add_answer(finished.generated);
        if of.is_multiple_of(self.n) {
            self.usage.add_prompt(prompt_tokens, finished.cached);
        }
        // Who asked for usage gets it once: clients add up what chunks say.
        let says_usage = D::USAGE_WITH_LAST && !self.includes_usage;
        let usage = says_usage.then(|| Usage::of(prompt_tokens, finished));
        self.write(frame, of, token, Some(finish_reason(finished.reason)), usage);
    }

    fn told_of(&self, finished: &mut Finished) {
        if self.hides_answer {
            hide(finished);
        }
    }

    fn end(&mut self, frame: &mut BytesMut) {
        if self.includes_usage {
            let no_choices: &[D::Delta<'_>] = &[];
            sse::write_event(frame, &self.envelope.around(D::CHUNK, no_choices, Some(self.usage)));
        }
        frame.put_slice(DONE);
    }

    fn failed(&mut self, frame: &mut BytesMut, error: &ApiError) {
        match self.route {
            Some(route) => sse::write_event(frame, &route.event(error)),
            None => sse::write_event(frame, &error.body()),
        }
        frame.put_slice(DONE);
    }

    fn seed(&self) -> Option<u64> {
        self.seed
    }
}

/// OpenAI's word for it.
fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::EndOfSequence | FinishReason::StopString => "stop",
    }
}

const DONE: &[u8] = b"data: [DONE]\n\n";
