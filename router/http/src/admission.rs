//! From a parsed request to generations that run: permit, checks, tokens, engine, in TGI's order.
//!
//! The permit comes before the checks, so an overloaded server says so even to a request that is wrong.

use headrace_engine::{EngineState, Generation, GenerationRequest, StopText, Terms};
use headrace_scheduler::{TokenId, Tokens};
use headrace_text::SpecialTokens;

use crate::call::Call;
use crate::error::ApiError;
use crate::parameters::Parameters;
use crate::permits::Permit;
use crate::state::ServerState;
use crate::validation::{self, Checked, Delivery, Model};

/// Generations the engine has taken, one per choice of `best_of`, and what is needed to show their answers.
pub(crate) struct Admission {
    pub generations: Vec<Generation>,
    pub checked: Checked,
    pub inputs: String,
    pub prompt: Vec<TokenId>,
}

/// Has the request of `call` taken by the engine, or says why it can't be.
pub(crate) async fn admit(
    call: &mut Call,
    inputs: String,
    parameters: &Parameters,
    delivery: Delivery,
) -> Result<Admission, ApiError> {
    let state = call.state().clone();
    if matches!(state.engine.state(), EngineState::Draining) {
        return Err(ApiError::ShuttingDown);
    }
    let best_of = validation::best_of(parameters, &state.limits, delivery)?;
    let permit = take_permit(&state, call.terms().tenant(), best_of)?;
    let model = Model { id: &state.info.model_id, vocab_size: state.tokenizer.vocab_size() };
    let seed = rand::random();
    let checked = validation::check(&inputs, parameters, best_of, &state.limits, model, delivery, seed)?;
    let truncate = checked.truncate;
    let tokens = state.tokenization.encode(inputs, move |text, encoding| (text, keep_last(encoding.ids, truncate)));
    let (inputs, prompt) = tokens.await?;
    let max_new = validation::fit(prompt.len(), &checked, &state.limits)?;
    let terms = call.terms().with(&checked.terms, call.received());
    let generations = submit(call, &checked, &prompt, max_new, &terms).await?;
    call.admitted(permit, &checked, Tokens(prompt.len() as u32), max_new);
    Ok(Admission { generations, checked, inputs, prompt })
}

fn take_permit(state: &ServerState, tenant: &str, count: u32) -> Result<Permit, ApiError> {
    state.permits.take(tenant, count).ok_or_else(|| ApiError::Overloaded {
        limit: state.limits.max_concurrent_requests,
        retry_after: state.engine.snapshot().drain,
    })
}

/// Truncation drops the beginning, special tokens there included.
fn keep_last(mut ids: Vec<TokenId>, keep: Option<u32>) -> Vec<TokenId> {
    let surplus = keep.map_or(0, |keep| ids.len().saturating_sub(keep as usize));
    ids.drain(..surplus);
    ids
}

async fn submit(
    call: &mut Call,
    checked: &Checked,
    prompt: &[TokenId],
    max_new_tokens: Tokens,
    terms: &Terms,
) -> Result<Vec<Generation>, ApiError> {
    let mut generations = Vec::with_capacity(checked.best_of as usize);
    for choice in 0..checked.best_of {
        let mut sampling = checked.sampling.clone();
        sampling.seed = checked.seed(choice);
        let request = GenerationRequest {
            prompt: prompt.to_vec(),
            max_new_tokens,
            ignore_eos: checked.ignore_eos,
            stop: checked.stop.clone(),
            stop_text: StopText::Keep,
            special_tokens: SpecialTokens::Show,
            sampling,
            terms: terms.clone(),
            observed: call.observed(),
        };
        generations.push(call.state().engine.generate(request).await?);
    }
    Ok(generations)
}
