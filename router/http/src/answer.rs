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

async fn answer(call: &mut Call, inputs: String, parameters: &Parameters, shape: Shape) -> Result<Response, ApiError> {
    let (checked, Admitted { text, tokens, generations }) = admit(call, inputs, parameters, Delivery::Whole).await?;
    let keep_tokens = checked.details || checked.choices > 1;
    let mut answers = collect(generations, keep_tokens).await?;
    // All choices have one prompt.
    let prompt_logprobs = answers.first_mut().map(|first| std::mem::take(&mut first.prompt_logprobs));
    let (best, lost) = best_of::pick(answers).ok_or(ApiError::Incomplete)?;

    let times = call.succeeded(&Summary::of(&best.finished, checked.shown_seed(best.choice)));
    let counts = Counts {
        characters: text.chars().count(),
        input: tokens.len(),
        cached: best.finished.cached,
        generated: best.finished.generated,
    };
    let show = Show {
        tokenizer: &call.state().tokenizer,
        checked: &checked,
        prompt: &tokens,
        prompt_logprobs: &prompt_logprobs.unwrap_or_default(),
        prepend: if checked.return_full_text == Some(true) { text.as_str() } else { "" },
    };
    let body = show.body(&best, &lost, shape);
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, headers::answered(call.state(), &times, counts), body).into_response())
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
