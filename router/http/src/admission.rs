//! From a parsed request to generations that run: permit, checks, tokens, engine, in TGI's order.
//!
//! The permit comes before the checks, so an overloaded server says so even to a request that is wrong.

use futures::future::try_join_all;
use headrace_engine::{EngineState, Generation, GenerationRequest};
use headrace_scheduler::{TokenId, Tokens};
use tokio::time::{Instant, timeout_at};

use crate::call::Call;
use crate::chat::{self, ChatInput};
use crate::error::ApiError;
use crate::invalid::Invalid;
use crate::parameters::Parameters;
use crate::permits::Permit;
use crate::state::ServerState;
use crate::tokenization::LONG_BYTES;
use crate::validation::{self, Checked, Delivery};

/// What is to be continued.
pub(crate) enum Prompt {
    /// A text, with the special tokens that the model expects around one.
    Text(String),
    /// Token ids as they are.
    Tokens(Vec<TokenId>),
    Chat(Box<ChatInput>),
}

/// Prompts whose generations the engine has taken, and what is needed to show their answers.
pub(crate) struct Admission {
    pub checked: Checked,
    pub prompts: Vec<Admitted>,
}

/// One prompt and its generations.
pub(crate) struct Admitted {
    /// As it was sent, or as the template rendered it; empty where tokens were sent.
    pub text: String,
    pub tokens: Vec<TokenId>,
    /// One per choice.
    pub generations: Vec<Generation>,
}

/// Has a request of a native route taken by the engine, or says why it can't be.
pub(crate) async fn admit(
    call: &mut Call,
    inputs: String,
    parameters: &Parameters,
    delivery: Delivery,
) -> Result<(Checked, Admitted), ApiError> {
    let state = call.state().clone();
    let best_of = validation::best_of(parameters, &state.limits, delivery)?;
    let permit = enter(call, best_of)?;
    let seed = rand::random();
    let checked =
        validation::check(inputs.is_empty(), parameters, best_of, &state.limits, state.model(), delivery, seed)?;
    let Admission { checked, mut prompts } = start(call, permit, vec![Prompt::Text(inputs)], checked).await?;
    let admitted = prompts.pop().ok_or(ApiError::Internal("a request without a prompt was started"))?;
    Ok((checked, admitted))
}

/// Takes a place for each generation of a request.
pub(crate) fn enter(call: &Call, generations: u32) -> Result<Permit, ApiError> {
    let state = call.state();
    if matches!(state.engine.state(), EngineState::Draining) {
        return Err(ApiError::ShuttingDown);
    }
    let permit = state.permits.take(call.terms().tenant(), generations);
    permit.ok_or_else(|| ApiError::Overloaded {
        limit: state.limits.max_concurrent_requests,
        retry_after: state.engine.snapshot().drain,
    })
}

/// Reads the prompts and has all their generations taken together, so that they are in one step if there is room. From
/// here to their end, the time that a request may take counts.
pub(crate) async fn start(
    call: &mut Call,
    permit: Permit,
    prompts: Vec<Prompt>,
    checked: Checked,
) -> Result<Admission, ApiError> {
    let Some(limit) = call.state().surface.request_timeout else { return take(call, permit, prompts, checked).await };
    let end = Instant::from_std(call.received() + limit);
    let taken = timeout_at(end, take(call, permit, prompts, checked)).await;
    let mut admission = taken.map_err(|_| ApiError::TimedOut { limit })??;
    let generations = admission.prompts.iter_mut().flat_map(|prompt| &mut prompt.generations);
    generations.for_each(|generation| generation.expire_at(end, limit));
    Ok(admission)
}

async fn take(call: &mut Call, permit: Permit, prompts: Vec<Prompt>, checked: Checked) -> Result<Admission, ApiError> {
    let state = call.state().clone();
    for prompt in &prompts {
        validation::fit_at_least(prompt.least_tokens(&state), &checked, &state.limits)?;
    }
    let reading = prompts.into_iter().map(|prompt| prompt.read(&state, &checked));
    let mut prompts = try_join_all(reading).await?;
    let fitting = prompts.iter().map(|prompt| validation::fit(prompt.tokens.len(), &checked, &state.limits));
    let lengths = fitting.collect::<Result<Vec<Tokens>, Invalid>>()?;
    let requests = requests(call, &checked, &prompts, &lengths);
    let mut generations = state.engine.generate_all(requests).await?.into_iter();
    for prompt in &mut prompts {
        prompt.generations.extend(generations.by_ref().take(checked.choices as usize));
    }
    let sizes = prompts.iter().map(|prompt| Tokens(prompt.tokens.len() as u32)).zip(lengths);
    call.admitted(permit, &checked, &sizes.collect::<Vec<_>>());
    Ok(Admission { checked, prompts })
}

impl Prompt {
    /// Nothing was sent. A chat never is nothing: its template writes something.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Tokens(tokens) => tokens.is_empty(),
            Self::Chat(_) => false,
        }
    }

    /// It has no fewer, as far as can be said without reading it. Of a short text nothing is said: it is soon counted. Nor
    /// of a chat, before it is rendered.
    fn least_tokens(&self, state: &ServerState) -> Option<usize> {
        match self {
            Self::Text(text) if text.len() > LONG_BYTES => {
                Some(state.tokenizer.least_tokens(text.len())).filter(|&least| least > 0)
            }
            Self::Tokens(tokens) => Some(tokens.len()),
            Self::Text(_) | Self::Chat(_) => None,
        }
    }

    async fn read(self, state: &ServerState, checked: &Checked) -> Result<Admitted, ApiError> {
        let (text, tokens) = match self {
            Self::Text(text) => state.tokenization.encode(text, |text, encoding| (text, encoding.ids)).await?,
            Self::Tokens(tokens) => (String::new(), tokens),
            Self::Chat(chat) => {
                let (shared, asked) = (state.clone(), checked.clone());
                let fits = move |least| validation::fit_at_least(least, &asked, &shared.limits);
                let prompt = chat::prompt(state, *chat, fits).await?;
                (prompt.text, prompt.encoding.ids)
            }
        };
        Ok(Admitted { text, tokens: keep_last(tokens, checked.truncate), generations: Vec::new() })
    }
}

/// Truncation drops the beginning, special tokens there included.
fn keep_last(mut ids: Vec<TokenId>, keep: Option<u32>) -> Vec<TokenId> {
    let surplus = keep.map_or(0, |keep| ids.len().saturating_sub(keep as usize));
    ids.drain(..surplus);
    ids
}

/// One for each choice of each prompt. Equal prompts are computed once: the scheduler lets the others wait for the first
/// one's blocks. Only a prompt's first choice reports its log-probabilities, as it must compute all of the prompt for
/// that.
fn requests(call: &mut Call, checked: &Checked, prompts: &[Admitted], lengths: &[Tokens]) -> Vec<GenerationRequest> {
    let terms = call.terms().with(&checked.terms, call.received());
    let mut requests = Vec::with_capacity(prompts.len() * checked.choices as usize);
    for (prompt, &max_new_tokens) in prompts.iter().zip(lengths) {
        for choice in 0..checked.choices {
            let mut sampling = checked.sampling.clone();
            sampling.seed = checked.seed(requests.len() as u32);
            sampling.prompt_logprobs &= choice == 0;
            requests.push(GenerationRequest {
                prompt: prompt.tokens.clone(),
                max_new_tokens,
                ignore_eos: checked.ignore_eos,
                stop: checked.stop.clone(),
                stop_text: checked.stop_text,
                special_tokens: checked.special_tokens,
                sampling,
                terms: terms.clone(),
                observed: call.observed(),
            });
        }
    }
    requests
}
