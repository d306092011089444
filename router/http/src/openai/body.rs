//! The fields that both routes read, and what they mean in native words.
//!
//! Every field may be null, and unknown ones are ignored. Beyond OpenAI's there are those of vLLM that this server knows
//! by another name, and Headrace's own `deadline_ms`.

use std::fmt;

use headrace_engine::StopText;
use headrace_text::SpecialTokens;
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use super::logit_bias::{LogitBias, LogitBiasShape};
use super::stops::{Stops, StopsShape};
use crate::invalid::Invalid;
use crate::numbers::{Object, WholeRange, real, whole};
use crate::parameters::Parameters;
use crate::state::{Limits, Shared};
use crate::terms::{Band, DeadlineMs};
use crate::validation::{self, Checked, Delivery};
use crate::within::Outside;

/// What `/v1/completions` and `/v1/chat/completions` have in common.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Common {
    /// Any name is taken, unless the server was started with `--served-model-name`. Answers repeat it.
    #[schema(example = "tgi")]
    pub model: Option<String>,
    /// 0 takes the most likely token each time. Left out: 1.
    #[serde(default, deserialize_with = "real")]
    #[schema(minimum = 0)]
    pub temperature: Option<f32>,
    /// Sample among the most likely tokens that together have this probability; 1 is all.
    #[serde(default, deserialize_with = "real")]
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    /// Sample among this many most likely tokens; 0 and −1 are all.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = -1)]
    pub top_k: Option<i32>,
    /// Sample among tokens with at least this share of the most likely one's probability.
    #[serde(default, deserialize_with = "real")]
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f32>,
    /// Sample among the tokens of typical information that together have this probability; 1 is all.
    #[serde(default, deserialize_with = "real")]
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub typical_p: Option<f32>,
    /// Divides the logits of tokens that occur in prompt or answer; 1 is none.
    #[serde(default, deserialize_with = "real")]
    #[schema(exclusive_minimum = 0)]
    pub repetition_penalty: Option<f32>,
    /// Subtracted from a token's logit for each time it was generated.
    #[serde(default, deserialize_with = "real")]
    #[schema(minimum = -2, maximum = 2)]
    pub frequency_penalty: Option<f32>,
    /// Subtracted once from the logits of tokens that were generated.
    #[serde(default, deserialize_with = "real")]
    #[schema(minimum = -2, maximum = 2)]
    pub presence_penalty: Option<f32>,
    /// What is added to logits: an object of token ids in quotes, or a list with a number for each id from 0 on.
    #[schema(value_type = Option<LogitBiasShape>)]
    pub logit_bias: Option<LogitBias>,
    /// Length of the answer, at most. Left out: as many as fit.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 1, example = 20)]
    pub max_tokens: Option<u32>,
    /// Another name of `max_tokens`; holds against it.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<u32>,
    /// Choices for each prompt.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 128)]
    pub n: Option<u32>,
    /// A text, or a list of texts, that ends the answer where it occurs.
    #[schema(value_type = Option<StopsShape>)]
    pub stop: Option<Stops>,
    /// Leave the text that ended the answer in it.
    pub include_stop_str_in_output: Option<bool>,
    /// Server-sent events, one per token, instead of one answer.
    pub stream: Option<bool>,
    #[schema(value_type = Option<StreamOptions>)]
    pub stream_options: Option<Object<StreamOptions>>,
    /// Draws the same tokens again, given the same request. Choice i uses `seed` + i.
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<i64>)]
    pub seed: Option<Seed>,
    /// Go on after an end-of-sequence token.
    pub ignore_eos: Option<bool>,
    /// Keep this many tokens of the prompt, the last ones.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 1)]
    pub truncate_prompt_tokens: Option<u32>,
    /// Smaller is more urgent, as in vLLM; the header `x-priority` counts the other way.
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<i32>, minimum = -100, maximum = 100)]
    pub priority: Option<Band>,
    /// From the arrival of the request to its first step; holds against `x-deadline-ms`.
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub deadline_ms: Option<DeadlineMs>,
    /// Requests share cached prefixes only with those of the same salt.
    #[schema(min_length = 1, max_length = 64)]
    pub cache_salt: Option<String>,
    /// Taken, and not read.
    #[schema(value_type = Option<Object>)]
    #[allow(dead_code, reason = "OpenAI's clients send it")]
    pub metadata: Option<IgnoredAny>,
    /// Taken, and not read: `x-tenant-id` says who asks.
    #[schema(value_type = Option<String>)]
    #[allow(dead_code, reason = "OpenAI's clients send it")]
    pub user: Option<IgnoredAny>,
    /// Taken, and not read: `priority` says how urgent it is.
    #[schema(value_type = Option<String>)]
    #[allow(dead_code, reason = "OpenAI's clients send it")]
    pub service_tier: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// A last chunk without choices says how many tokens there were.
    pub include_usage: Option<bool>,
}

/// What a route wants told of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reports {
    /// The log-probability of each token.
    pub logprobs: bool,
    /// Likely tokens beside each.
    pub top: u32,
    /// The same of the prompt's tokens.
    pub prompt: bool,
}

/// The field that asks for likely tokens beside each, and the most that it may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Likely {
    pub field: &'static str,
    pub max: u32,
}

/// How many generations a prompt gets, and how many of them are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choices {
    pub n: u32,
    pub best_of: u32,
}

impl Common {
    pub fn delivery(&self) -> Delivery {
        if self.stream == Some(true) { Delivery::Stream } else { Delivery::Whole }
    }

    /// The answer's length as it was given.
    pub fn max_new_tokens(&self) -> Option<u32> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    /// As if no length had been given.
    pub fn forget_max_new_tokens(&mut self) {
        (self.max_completion_tokens, self.max_tokens) = (None, None);
    }

    pub fn includes_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.0.include_usage == Some(true))
    }

    /// Choices of a request with so many prompts. `n` is bounded by what could ever run at once, so that a request which
    /// would be refused for ever is told so.
    pub fn choices(&self, best_of: Option<u32>, prompts: usize, limits: &Limits) -> Result<Choices, Invalid> {
        let n = self.n.unwrap_or(1);
        let at_once = limits.max_concurrent_requests / (prompts.max(1) as u32);
        let max = MAX_CHOICES.min(at_once);
        if n == 0 || n > max {
            return Err(Invalid::Choices { field: "n", max, given: n });
        }
        let best_of = best_of.unwrap_or(n);
        if best_of < n {
            return Err(Invalid::BestOfBelowChoices { n, given: best_of });
        }
        if best_of > n && self.delivery() == Delivery::Stream {
            return Err(Invalid::BestOfBeyondChoicesStream { n, given: best_of });
        }
        validation::check_best_of(best_of, n.max(limits.max_best_of), at_once)?;
        Ok(Choices { n, best_of })
    }

    /// Checks the fields as native routes do. `prompt_empty`: some prompt is. `seed` is used where the request draws its
    /// own.
    pub fn check(
        &self,
        prompt_empty: bool,
        choices: Choices,
        reports: Reports,
        likely: Likely,
        state: &Shared,
        seed: u64,
    ) -> Result<Checked, Invalid> {
        let parameters = self.parameters(reports);
        let limits = Limits { max_top_n_tokens: likely.max, ..state.limits.clone() };
        let checked = validation::check(prompt_empty, &parameters, 1, &limits, state.model(), Delivery::Whole, seed);
        let checked = checked.map_err(|invalid| match invalid {
            Invalid::TopNTokens { max, given, .. } => Invalid::TopNTokens { field: likely.field, max, given },
            Invalid::Temperature { given } => Invalid::TemperatureOrGreedy { given },
            Invalid::TopP { given } => Invalid::ShareOrAll { field: "top_p", given },
            Invalid::TypicalP { given } => Invalid::ShareOrAll { field: "typical_p", given },
            Invalid::TopK { given } => Invalid::TopKOrAll { given },
            other => other,
        })?;
        Ok(self.in_openais_manner(checked, choices))
    }

    /// The fields by their native names. What asks for nothing is left out, as native routes refuse some of it.
    fn parameters(&self, reports: Reports) -> Parameters {
        Parameters {
            temperature: self.temperature.filter(|_| !self.is_greedy()),
            do_sample: !self.is_greedy(),
            top_p: self.top_p.filter(|&share| share != 1.0),
            typical_p: self.typical_p.filter(|&share| share != 1.0),
            top_k: self.top_k.filter(|k| !matches!(k, -1 | 0)),
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            logit_bias: self.logit_bias.clone().map(LogitBias::into_map),
            max_new_tokens: self.max_new_tokens(),
            ignore_eos_token: self.ignore_eos,
            stop: self.stop.clone().map(Stops::into_list).unwrap_or_default(),
            truncate: self.truncate_prompt_tokens,
            details: reports.logprobs,
            decoder_input_details: reports.prompt,
            seed: self.seed.map(|seed| seed.0),
            top_n_tokens: (reports.top > 0).then_some(reports.top),
            priority: self.priority.and_then(|band| Band::try_from(-band.get()).ok()),
            deadline_ms: self.deadline_ms,
            cache_salt: self.cache_salt.clone(),
            ..Parameters::default()
        }
    }

    fn in_openais_manner(&self, mut checked: Checked, choices: Choices) -> Checked {
        checked.choices = choices.best_of;
        checked.sampling.logprobs |= choices.best_of > choices.n;
        if self.is_greedy() {
            checked.sampling.temperature = 0.0;
        }
        if self.include_stop_str_in_output != Some(true) {
            checked.stop_text = StopText::Strip;
        }
        checked.special_tokens = SpecialTokens::Skip;
        checked
    }

    /// Whatever filters are set beside it.
    fn is_greedy(&self) -> bool {
        self.temperature == Some(0.0)
    }
}

/// Any 64 bits, with or without a sign: OpenAI's seeds may be negative, TGI's go further up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(pub u64);

impl WholeRange for Seed {
    /// Shown as what it stands for.
    const MIN: Self = Self(1 << 63);
    const MAX: Self = Self(u64::MAX);
}

impl TryFrom<u64> for Seed {
    type Error = Outside;

    fn try_from(seed: u64) -> Result<Self, Outside> {
        Ok(Self(seed))
    }
}

impl TryFrom<i64> for Seed {
    type Error = Outside;

    fn try_from(seed: i64) -> Result<Self, Outside> {
        Ok(Self(seed.cast_unsigned()))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MIN { i64::MIN.fmt(f) } else { self.0.fmt(f) }
    }
}

/// OpenAI's limit of `n`.
const MAX_CHOICES: u32 = 128;
