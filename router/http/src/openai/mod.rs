//! OpenAI's routes: `/v1/completions` and `/v1/chat/completions`, for clients of OpenAI, of TGI and of vLLM.
//!
//! In the order of a request's life:
//!
//! 1. `completion_body`, `chat_body`: the JSON of each route; `body`: what they have in common, and what it means in the
//!    words of native routes, whose checks then hold. `prompts`, `stops`, `logit_bias`: fields with more than one form.
//! 2. `later`: what this version refuses because it comes with structured output and tool calls.
//! 3. `respond`: admission, and either the whole answer or its chunks; the same for both routes.
//! 4. `completion`, `chat`: the JSON of each route's answers and chunks; `envelope`, `usage` and `logprobs` are parts of
//!    it.
//! 5. `errors`: OpenAI's error object around TGI's words, for every answer of a `/v1` route.
//!
//! `models` is the list of models.

pub(crate) mod body;
pub(crate) mod chat;
pub(crate) mod chat_body;
pub(crate) mod completion;
pub(crate) mod completion_body;
pub(crate) mod envelope;
pub(crate) mod errors;
pub(crate) mod later;
mod logit_bias;
mod logprobs;
pub(crate) mod models;
mod prompts;
pub(crate) mod respond;
mod stops;
mod usage;
