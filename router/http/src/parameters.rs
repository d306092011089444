//! The JSON of native routes as clients send it: nothing is checked here but types.
//!
//! Unknown names are ignored. A field that may be null is an `Option`; `null` for any other is an error, as in TGI.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use crate::numbers::{Key, Object, Real, real, whole};
use crate::terms::{Band, DeadlineMs};

/// Body of `/generate`, `/generate_stream` and `/tokenize`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = GenerateRequest)]
pub(crate) struct GenerateBody {
    /// The prompt.
    #[schema(min_length = 1, example = "The capital of France is")]
    pub inputs: String,
    /// Left out, the request samples (`do_sample`); an empty object is greedy.
    #[serde(default)]
    #[schema(value_type = Parameters, required = false)]
    pub parameters: Given,
}

/// Body of `POST /`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = CompatGenerateRequest)]
pub(crate) struct CompatBody {
    /// The prompt.
    #[schema(min_length = 1, example = "The capital of France is")]
    pub inputs: String,
    /// Left out, the request samples (`do_sample`); an empty object is greedy.
    #[serde(default)]
    #[schema(value_type = Parameters, required = false)]
    pub parameters: Given,
    /// Server-sent events, one per token, instead of one answer.
    #[serde(default)]
    pub stream: bool,
}

/// `parameters`, or what stands for them when they are left out.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Object<Parameters>")]
pub(crate) struct Given(pub Parameters);

impl From<Object<Parameters>> for Given {
    fn from(object: Object<Parameters>) -> Self {
        Self(object.0)
    }
}

impl Default for Given {
    /// A request without `parameters` samples; one with an empty object is greedy. Odd, but what TGI's clients see.
    fn default() -> Self {
        Self(Parameters { do_sample: true, ..Parameters::default() })
    }
}

/// Every name of TGI 3, and beside them `presence_penalty`, `min_p`, `logit_bias`, `ignore_eos_token`, `priority`,
/// `deadline_ms` and `cache_salt`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = GenerateParameters)]
pub(crate) struct Parameters {
    /// Independent generations, of which the one with the best mean log-probability is the answer.
    #[serde(deserialize_with = "whole")]
    pub best_of: Option<u32>,
    /// Divides the logits before sampling: below 1 sharper, above 1 flatter.
    #[serde(deserialize_with = "real")]
    #[schema(exclusive_minimum = 0, example = 0.7)]
    pub temperature: Option<f32>,
    /// Divides positive and multiplies negative logits of tokens that occur in prompt or answer; 1 is none.
    #[serde(deserialize_with = "real")]
    #[schema(exclusive_minimum = 0)]
    pub repetition_penalty: Option<f32>,
    /// Subtracted from a token's logit for each time it was generated.
    #[serde(deserialize_with = "real")]
    #[schema(minimum = -2, maximum = 2)]
    pub frequency_penalty: Option<f32>,
    /// Subtracted once from the logits of tokens that were generated.
    #[serde(deserialize_with = "real")]
    #[schema(minimum = -2, maximum = 2)]
    pub presence_penalty: Option<f32>,
    /// Sample among this many most likely tokens.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1)]
    pub top_k: Option<i32>,
    /// Sample among the most likely tokens that together have this probability.
    #[serde(deserialize_with = "real")]
    #[schema(exclusive_minimum = 0, exclusive_maximum = 1)]
    pub top_p: Option<f32>,
    /// Sample among the tokens of typical information that together have this probability.
    #[serde(deserialize_with = "real")]
    #[schema(exclusive_minimum = 0, exclusive_maximum = 1)]
    pub typical_p: Option<f32>,
    /// Sample among tokens with at least this share of the most likely one's probability.
    #[serde(deserialize_with = "real")]
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f32>,
    /// Token id → what is added to its logit.
    #[schema(default = json!(null), value_type = Option<BTreeMap<String, f32>>)]
    pub logit_bias: Option<BTreeMap<Key, Real>>,
    /// Draw tokens at random instead of taking the most likely one.
    pub do_sample: bool,
    /// Length of the answer, at most. Left out: as many as fit.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, example = 20)]
    pub max_new_tokens: Option<u32>,
    /// Go on after an end-of-sequence token.
    pub ignore_eos_token: Option<bool>,
    /// Begin the answer with the prompt.
    pub return_full_text: Option<bool>,
    /// Texts that end the answer where they occur; they stay part of it.
    pub stop: Vec<String>,
    /// Keep this many tokens of the prompt, the last ones.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1)]
    pub truncate: Option<u32>,
    /// Not supported: true is refused.
    pub watermark: bool,
    /// Tell the answer's tokens, and why it ended.
    pub details: bool,
    /// Tell the prompt's tokens and their log-probabilities. Not on streams.
    pub decoder_input_details: bool,
    /// Draws the same tokens again, given the same request. Left out: a new one each time.
    #[serde(deserialize_with = "whole")]
    #[schema(format = "uint64")]
    pub seed: Option<u64>,
    /// Most likely tokens to tell at each place of the answer.
    #[serde(deserialize_with = "whole")]
    pub top_n_tokens: Option<u32>,
    /// Not available in this version: refused.
    #[schema(default = json!(null), value_type = Option<Grammar>)]
    pub grammar: Option<Object<Grammar>>,
    /// Only the model's own name.
    pub adapter_id: Option<String>,
    /// Larger is more urgent; holds against `x-priority`.
    #[serde(deserialize_with = "whole")]
    #[schema(default = json!(null), value_type = Option<i32>, minimum = -100, maximum = 100)]
    pub priority: Option<Band>,
    /// From the arrival of the request to its first step; holds against `x-deadline-ms`.
    #[serde(deserialize_with = "whole")]
    #[schema(default = json!(null), value_type = Option<u32>, minimum = 1)]
    pub deadline_ms: Option<DeadlineMs>,
    /// Requests share cached prefixes only with those of the same salt.
    #[schema(min_length = 1, max_length = 64)]
    pub cache_salt: Option<String>,
}

/// `{"type": …, "value": …}`. Only its shape is read in this version.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = GrammarType)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub(crate) enum Grammar {
    #[serde(alias = "json_object")]
    Json(#[schema(inline)] Anything),
    Regex(#[expect(dead_code, reason = "read for its shape")] String),
    JsonSchema(#[expect(dead_code, reason = "read for its shape")] NamedSchema),
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "read for its shape")]
pub(crate) struct NamedSchema {
    name: Option<String>,
    #[schema(value_type = Object)]
    schema: IgnoredAny,
}

/// Any JSON.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(value_type = Value)]
pub(crate) struct Anything(IgnoredAny);
