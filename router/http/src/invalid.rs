//! What is wrong with a request that parsed, in TGI's words first.
//!
//! Clients and tests match the beginning of these sentences, so TGI's sentence stays as it is; what follows it says
//! what was given, or what to do.

use std::fmt;

/// Tokens of a prompt, or as many as it has for sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Exactly(usize),
    AtLeast(usize),
}

impl Count {
    pub fn get(self) -> usize {
        match self {
            Self::Exactly(count) | Self::AtLeast(count) => count,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(count) => count.fmt(f),
            Self::AtLeast(count) => write!(f, "at least {count}"),
        }
    }
}

/// A request that can't be served as it is. Status 422, error_type `validation`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("`best_of` must be > 0 and <= {max}. Given: {given}. Ask for fewer, or raise --max-best-of")]
    BestOf { max: u32, given: u32 },
    #[error(
        "`best_of` > `n`, which is {n}, is not supported when streaming tokens. Given: {given}. Leave it out, or ask for \
         the whole answer"
    )]
    BestOfBeyondChoicesStream { n: u32, given: u32 },
    #[error("`best_of` != 1 is not allowed for this endpoint. Given: {given}. Leave it out, or raise --max-best-of")]
    BestOfDisabled { given: u32 },
    #[error(
        "`best_of` != 1 is not supported when streaming tokens. Given: {given}. Leave it out, or use a route that \
         answers at once"
    )]
    BestOfStream { given: u32 },
    #[error(
        "`decoder_input_details` == true is not supported when streaming tokens. Leave it out, or use a route that \
         answers at once"
    )]
    PrefillDetailsStream,
    #[error("you must use sampling when `best_of` is > 1. Set `do_sample` to true, or leave `best_of` out")]
    BestOfSampling,
    #[error("`temperature` must be strictly positive. Given: {given:?}. For greedy decoding set `do_sample` to false")]
    Temperature { given: f32 },
    #[error("`repetition_penalty` must be strictly positive. Given: {given:?}. 1.0 means no penalty")]
    RepetitionPenalty { given: f32 },
    #[error("`frequency_penalty` must be >= -2.0 and <= 2.0. Given: {given:?}. 0.0 means no penalty")]
    FrequencyPenalty { given: f32 },
    #[error("`presence_penalty` must be >= -2.0 and <= 2.0. Given: {given:?}. 0.0 means no penalty")]
    PresencePenalty { given: f32 },
    #[error("`top_p` must be > 0.0 and < 1.0. Given: {given:?}. Leave it out to keep all tokens")]
    TopP { given: f32 },
    #[error("`typical_p` must be > 0.0 and < 1.0. Given: {given:?}. Leave it out to keep all tokens")]
    TypicalP { given: f32 },
    #[error("`min_p` must be >= 0.0 and <= 1.0. Given: {given:?}. Leave it out to keep all tokens")]
    MinP { given: f32 },
    #[error("`top_k` must be strictly positive. Given: {given}. Leave it out to keep all tokens")]
    TopK { given: i32 },
    /// OpenAI's routes also take what asks for nothing.
    #[error("`temperature` must be strictly positive. Given: {given:?}. 0.0, which is greedy decoding, is taken too")]
    TemperatureOrGreedy { given: f32 },
    #[error("`{field}` must be > 0.0 and < 1.0. Given: {given:?}. 1.0, which keeps all tokens, is taken too")]
    ShareOrAll { field: &'static str, given: f32 },
    #[error("`top_k` must be strictly positive. Given: {given}. 0 and -1, which keep all tokens, are taken too")]
    TopKOrAll { given: i32 },
    #[error("`max_new_tokens` must be strictly positive. Given: 0. Leave it out to generate as many as fit")]
    NoNewTokens,
    #[error("`stop` supports up to {max} stop sequences. Given: {given}. Send fewer, or raise --max-stop-sequences")]
    StopSequences { max: u32, given: usize },
    #[error("`seed` must not be set when `best_of` > 1. Leave one of the two out")]
    BestOfSeed,
    /// `field`: as the route calls it.
    #[error("`{field}` must be >= 0 and <= {max}. Given: {given}. Ask for fewer, or raise --max-top-n-tokens")]
    TopNTokens { field: &'static str, max: u32, given: u32 },
    #[error("`logit_bias` supports up to {max} tokens. Given: {given}. Send fewer")]
    LogitBiasSize { max: usize, given: usize },
    #[error("`logit_bias` must name token ids below {vocab_size}, the size of the vocabulary. Given: {given}")]
    LogitBiasToken { vocab_size: u32, given: u32 },
    #[error("`logit_bias` must be >= -100.0 and <= 100.0. Given: {given:?} for token {token}")]
    LogitBiasValue { token: u32, given: f32 },
    #[error("`watermark` is not supported by this server. Leave it out, or set it to false")]
    Watermark,
    #[error("`adapter_id`: adapters are not available in this version. Given: {given:?}. Leave it out")]
    Adapter { given: String },
    #[error("`inputs` cannot be empty. Send a text of at least one token")]
    EmptyInputs,
    #[error("`messages` must hold at least one message. Send what is to be answered, as one of the role \"user\"")]
    NoMessages,
    #[error(
        "`truncate` must be strictly positive and less than {}. Given: {given}. At most {max} can be kept: leave it out \
         to keep the whole prompt, or raise --max-input-tokens",
        one_more(.max)
    )]
    Truncate { max: u32, given: u32 },
    #[error("tokenizer error {reason}")]
    Tokenizer { reason: String },
    #[error(
        "`inputs` tokens + `max_new_tokens` must be <= {max}. Given: {input} `inputs` tokens and {new} \
         `max_new_tokens`. Shorten `inputs`, set `truncate`, lower `max_new_tokens`, or raise --max-total-tokens"
    )]
    TotalTokens { max: u32, input: Count, new: u32 },
    #[error(
        "`inputs` must have less than {} tokens. Given: {input}. At most {max} are taken: shorten `inputs`, set \
         `truncate`, or raise --max-input-tokens",
        one_more(.max)
    )]
    InputLength { max: u32, input: Count },
    #[error(
        "`cache_salt` must have 1 to {max} bytes. Given: {given}. Requests with different salts share no cached prefix; \
         leave it out to share"
    )]
    CacheSalt { max: usize, given: usize },
    #[error(
        "header `x-tenant-id` must be 1 to {max} printable ASCII characters. Given: {given} bytes. Leave it out for the \
         default tenant"
    )]
    TenantHeader { max: usize, given: usize },
    #[error(
        "header `{name}` must be a whole number from {min} to {max}. Given: {given:?}. Leave it out, or correct it"
    )]
    NumberHeader { name: &'static str, min: i64, max: i64, given: String },
    #[error(
        "`inputs` supports up to {max} inputs. Given: {given}. Send fewer at a time, or raise --max-concurrent-requests"
    )]
    TooManyInputs { max: u32, given: usize },
    #[error("header `{name}` came {times} times. Send it once")]
    RepeatedHeader { name: &'static str, times: usize },
    /// `field`: `n`, or `best_of` where that asks for more.
    #[error(
        "`{field}` must be > 0 and <= {max} for this request. Given: {given}. All choices of all prompts run at once: \
         ask for fewer, or raise --max-concurrent-requests"
    )]
    Choices { field: &'static str, max: u32, given: u32 },
    #[error("`best_of` must be >= `n`, which is {n}. Given: {given}. Ask for more, or leave it out")]
    BestOfBelowChoices { n: u32, given: u32 },
    #[error("`prompt` must name token ids below {vocab_size}, the size of the vocabulary. Given: {given}")]
    PromptToken { vocab_size: u32, given: u32 },
    #[error("`{field}`: structured output is not available in this version. Leave it out")]
    Structured { field: &'static str },
    #[error("grammar is not supported: structured output is not available in this version. Leave `grammar` out")]
    Grammar,
}

/// What TGI says is less than this: `max` itself is taken.
fn one_more(max: &u32) -> u64 {
    u64::from(*max) + 1
}

impl Invalid {
    /// The field that is wrong, by its native name.
    pub fn field(&self) -> &'static str {
        match self {
            Self::BestOf { .. }
            | Self::BestOfDisabled { .. }
            | Self::BestOfStream { .. }
            | Self::BestOfBeyondChoicesStream { .. }
            | Self::BestOfSampling
            | Self::BestOfBelowChoices { .. } => "best_of",
            Self::PrefillDetailsStream => "decoder_input_details",
            Self::Temperature { .. } | Self::TemperatureOrGreedy { .. } => "temperature",
            Self::RepetitionPenalty { .. } => "repetition_penalty",
            Self::FrequencyPenalty { .. } => "frequency_penalty",
            Self::PresencePenalty { .. } => "presence_penalty",
            Self::TopP { .. } => "top_p",
            Self::TypicalP { .. } => "typical_p",
            Self::MinP { .. } => "min_p",
            Self::TopK { .. } | Self::TopKOrAll { .. } => "top_k",
            Self::NoNewTokens | Self::TotalTokens { .. } => "max_new_tokens",
            Self::StopSequences { .. } => "stop",
            Self::BestOfSeed => "seed",
            Self::TopNTokens { field, .. } | Self::ShareOrAll { field, .. } | Self::Choices { field, .. } => field,
            Self::LogitBiasSize { .. } | Self::LogitBiasToken { .. } | Self::LogitBiasValue { .. } => "logit_bias",
            Self::Watermark => "watermark",
            Self::Adapter { .. } => "adapter_id",
            Self::EmptyInputs | Self::Tokenizer { .. } | Self::InputLength { .. } | Self::TooManyInputs { .. } => {
                "inputs"
            }
            Self::NoMessages => "messages",
            Self::Truncate { .. } => "truncate",
            Self::CacheSalt { .. } => "cache_salt",
            Self::TenantHeader { .. } => "x-tenant-id",
            Self::NumberHeader { name, .. } | Self::RepeatedHeader { name, .. } => name,
            Self::PromptToken { .. } => "prompt",
            Self::Structured { field } => field,
            Self::Grammar => "grammar",
        }
    }
}
