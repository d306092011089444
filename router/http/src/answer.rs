//! A whole answer: waits for all generations of a request, then shows them in TGI's shape.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::future::try_join_all;
use headrace_engine::{Finished, GeneratedToken, Generation, Update};
use headrace_scheduler::TokenId;
use headrace_text::Tokenizer;

use crate::admission::{Admission, admit};
use crate::best_of;
use crate::call::Call;
use crate::error::ApiError;
use crate::headers::{self, Counts};
use crate::json;
use crate::parameters::Parameters;
use crate::validation::{Checked, Delivery};
use crate::wire::{Choice, Details, Generated, LostChoice, Token, finish_reason_name, prefill};

/// What one generation brought, and which choice of `best_of` it was.
pub(crate) struct Answer {
    choice: u32,
    prompt_logprobs: Vec<f32>,
    /// Empty unless somebody will look at them.
    pub tokens: Vec<GeneratedToken>,
    finished: Finished,
}

/// `/generate` answers an object, `/` an array of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Object,
    Array,
}

/// Answers a request at once.
pub(crate) async fn respond(mut call: Call, inputs: String, parameters: Parameters, shape: Shape) -> Response {
    match answer(&mut call, inputs, &parameters, shape).await {
        Ok(response) => response,
        Err(error) => {
            call.failed(&error);
            error.into_response()
        }
    }
}

async fn answer(call: &mut Call, inputs: String, parameters: &Parameters, shape: Shape) -> Result<Response, ApiError> {
    let Admission { generations, checked, inputs, prompt } = admit(call, inputs, parameters, Delivery::Whole).await?;
    let keep_tokens = checked.details || checked.best_of > 1;
    let collecting = (0..).zip(generations).map(|(choice, generation)| collect(choice, generation, keep_tokens));
    let answers = try_join_all(collecting).await?;
    let (best, lost) = best_of::pick(answers).ok_or(ApiError::Incomplete)?;

    let times = call.succeeded(&best.finished, checked.shown_seed(best.choice));
    let counts = Counts {
        characters: inputs.chars().count(),
        input: prompt.len(),
        cached: best.finished.cached,
        generated: best.finished.generated,
    };
    let prepend = if checked.return_full_text == Some(true) { inputs.as_str() } else { "" };
    let show = Show { tokenizer: &call.state().tokenizer, checked: &checked, prompt: &prompt, prepend };
    let body = show.body(&best, &lost, shape);
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, headers::answered(call.state(), &times, counts), body).into_response())
}

async fn collect(choice: u32, mut generation: Generation, keep_tokens: bool) -> Result<Answer, ApiError> {
    let mut prompt_logprobs = Vec::new();
    let mut tokens = Vec::new();
    while let Some(update) = generation.next().await {
        match update {
            Update::Prompt(logprobs) => prompt_logprobs = logprobs,
            Update::Token(token) if keep_tokens => tokens.push(token),
            Update::Token(_) => {}
            Update::Finished(finished) => return Ok(Answer { choice, prompt_logprobs, tokens, finished }),
            Update::Failed(error) => return Err(error.into()),
        }
    }
    Err(ApiError::Incomplete)
}

/// What it takes to turn answers into JSON.
struct Show<'a> {
    tokenizer: &'a Tokenizer,
    checked: &'a Checked,
    prompt: &'a [TokenId],
    /// The prompt's text where the answer shows it, else empty.
    prepend: &'a str,
}

impl Show<'_> {
    fn body(&self, best: &Answer, lost: &[Answer], shape: Shape) -> bytes::Bytes {
        let lost_texts: Vec<String> = lost.iter().map(|answer| self.text(answer)).collect();
        let losers = lost.iter().zip(&lost_texts);
        let losers = losers.map(|(answer, text)| LostChoice { generated_text: text, choice: self.choice(answer) });
        let details = self.checked.details.then(|| Details {
            choice: self.choice(best),
            best_of_sequences: (self.checked.best_of > 1).then(|| losers.collect()),
        });
        let text = self.text(best);
        let generated = Generated { generated_text: &text, details };
        match shape {
            Shape::Object => json::bytes(&generated),
            Shape::Array => json::bytes(&[generated]),
        }
    }

    fn text(&self, answer: &Answer) -> String {
        format!("{}{}", self.prepend, answer.finished.text)
    }

    fn choice<'a>(&self, answer: &'a Answer) -> Choice<'a> {
        let top_tokens = if self.checked.sampling.top_n > 0 {
            answer.tokens.iter().map(|token| Token::top(&token.top)).collect()
        } else {
            Vec::new()
        };
        Choice {
            finish_reason: finish_reason_name(answer.finished.reason),
            generated_tokens: answer.finished.generated.0,
            seed: self.checked.shown_seed(answer.choice),
            prefill: prefill(self.tokenizer, self.prompt, &answer.prompt_logprobs),
            tokens: answer.tokens.iter().map(Token::sampled).collect(),
            top_tokens,
        }
    }
}
