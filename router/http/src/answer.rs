//! A whole answer: waits for all generations of a request, then shows them in TGI's shape.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use headrace_scheduler::TokenId;
use headrace_text::Tokenizer;

use crate::admission::{Admitted, admit};
use crate::best_of;
use crate::call::{Call, Summary};
use crate::collect::{Answer, collect};
use crate::error::ApiError;
use crate::headers::{self, Counts};
use crate::json;
use crate::parameters::Parameters;
use crate::validation::{Checked, Delivery};
use crate::wire::{Choice, Details, Generated, LostChoice, Token, finish_reason_name, prefill};

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

/// The text of the answer and nothing else.
pub(crate) async fn text(call: &mut Call, inputs: String, parameters: &Parameters) -> Result<String, ApiError> {
    let (checked, mut admitted) = admit(call, inputs, parameters, Delivery::Whole).await?;
    let (mut best, _) = best(&checked, &mut admitted).await?;
    call.succeeded(&Summary::of(&best.finished, checked.shown_seed(best.choice)));
    best.finished.text.insert_str(0, prepended(&checked, &admitted));
    Ok(best.finished.text)
}

async fn answer(call: &mut Call, inputs: String, parameters: &Parameters, shape: Shape) -> Result<Response, ApiError> {
    let (checked, mut admitted) = admit(call, inputs, parameters, Delivery::Whole).await?;
    let (mut best, mut lost) = best(&checked, &mut admitted).await?;
    // All choices have one prompt, and the first one tells of it.
    let mut choices = std::iter::once(&mut best).chain(&mut lost);
    let first = choices.find(|answer| answer.choice == 0);
    let prompt_logprobs = first.map(|first| std::mem::take(&mut first.prompt_logprobs)).unwrap_or_default();

    let times = call.succeeded(&Summary::of(&best.finished, checked.shown_seed(best.choice)));
    let Admitted { text, tokens, .. } = &admitted;
    let counts = Counts {
        characters: text.chars().count(),
        input: tokens.len(),
        cached: best.finished.cached,
        generated: best.finished.generated,
    };
    let show = Show {
        tokenizer: &call.state().tokenizer,
        checked: &checked,
        prompt: tokens,
        prompt_logprobs: &prompt_logprobs,
        prepend: prepended(&checked, &admitted),
    };
    let body = show.body(&best, &lost, shape);
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, headers::answered(call.state(), &times, counts), body).into_response())
}

/// The best of the choices, and the others.
async fn best(checked: &Checked, admitted: &mut Admitted) -> Result<(Answer, Vec<Answer>), ApiError> {
    let keep_tokens = checked.details || checked.choices > 1;
    let answers = collect(std::mem::take(&mut admitted.generations), keep_tokens).await?;
    best_of::pick(answers).ok_or(ApiError::Incomplete)
}

/// The prompt's text where the answer shows it, else nothing.
fn prepended<'a>(checked: &Checked, admitted: &'a Admitted) -> &'a str {
    if checked.return_full_text == Some(true) { &admitted.text } else { "" }
}

/// What it takes to turn answers into JSON.
struct Show<'a> {
    tokenizer: &'a Tokenizer,
    checked: &'a Checked,
    prompt: &'a [TokenId],
    /// As many as the prompt has tokens, or none.
    prompt_logprobs: &'a [f32],
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
            best_of_sequences: (self.checked.choices > 1).then(|| losers.collect()),
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
            prefill: prefill(self.tokenizer, self.prompt, self.prompt_logprobs),
            tokens: answer.tokens.iter().map(Token::sampled).collect(),
            top_tokens,
        }
    }
}
