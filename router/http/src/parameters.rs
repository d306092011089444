//! The JSON of native routes as clients send it: nothing is checked here but types.
//!
//! Unknown names are ignored. A field that may be null is an `Option`; `null` for any other is an error, as in TGI.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::numbers::{Key, Object, Real, real, whole};
use crate::terms::{Band, DeadlineMs};

/// Body of `/generate`, `/generate_stream` and `/tokenize`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GenerateBody {
    pub inputs: String,
    #[serde(default)]
    pub parameters: Given,
}

/// Body of `POST /`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CompatBody {
    pub inputs: String,
    #[serde(default)]
    pub parameters: Given,
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
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Parameters {
    /// Independent generations, of which the one with the best mean log-probability is the answer.
    #[serde(deserialize_with = "whole")]
    pub best_of: Option<u32>,
    #[serde(deserialize_with = "real")]
    pub temperature: Option<f32>,
    #[serde(deserialize_with = "real")]
    pub repetition_penalty: Option<f32>,
    #[serde(deserialize_with = "real")]
    pub frequency_penalty: Option<f32>,
    #[serde(deserialize_with = "real")]
    pub presence_penalty: Option<f32>,
    #[serde(deserialize_with = "whole")]
    pub top_k: Option<i32>,
    #[serde(deserialize_with = "real")]
    pub top_p: Option<f32>,
    #[serde(deserialize_with = "real")]
    pub typical_p: Option<f32>,
    #[serde(deserialize_with = "real")]
    pub min_p: Option<f32>,
    /// Token id → what is added to its logit.
    pub logit_bias: Option<BTreeMap<Key, Real>>,
    pub do_sample: bool,
    #[serde(deserialize_with = "whole")]
    pub max_new_tokens: Option<u32>,
    pub ignore_eos_token: Option<bool>,
    pub return_full_text: Option<bool>,
    pub stop: Vec<String>,
    /// Keep this many tokens of the prompt, the last ones.
    #[serde(deserialize_with = "whole")]
    pub truncate: Option<u32>,
    pub watermark: bool,
    pub details: bool,
    pub decoder_input_details: bool,
    #[serde(deserialize_with = "whole")]
    pub seed: Option<u64>,
    #[serde(deserialize_with = "whole")]
    pub top_n_tokens: Option<u32>,
    pub grammar: Option<Object<Grammar>>,
    pub adapter_id: Option<String>,
    /// Larger is more urgent; holds against `x-priority`.
    #[serde(deserialize_with = "whole")]
    pub priority: Option<Band>,
    /// From the arrival of the request to its first step; holds against `x-deadline-ms`.
    #[serde(deserialize_with = "whole")]
    pub deadline_ms: Option<DeadlineMs>,
    /// Requests share cached prefixes only with those of the same salt.
    pub cache_salt: Option<String>,
}

/// `{"type": …, "value": …}`. Only its shape is read in this version.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub(crate) enum Grammar {
    #[serde(alias = "json_object")]
    Json(IgnoredAny),
    Regex(#[expect(dead_code, reason = "read for its shape")] String),
    JsonSchema(#[expect(dead_code, reason = "read for its shape")] NamedSchema),
}

#[derive(Clone, Debug, Deserialize)]
#[expect(dead_code, reason = "read for its shape")]
pub(crate) struct NamedSchema {
    name: Option<String>,
    schema: IgnoredAny,
}
