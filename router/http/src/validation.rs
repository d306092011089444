//! From what was sent to what was meant: every limit, in TGI's order, and every default. Pure.
//!
//! The order shows: a request with two faults gets the first one's message. [`best_of`] comes before anything else,
//! even before the concurrency limit; then [`check`]; then, once the prompt's tokens are counted, [`fit`].

use std::fmt;

use headrace_engine::StopText;
use headrace_scheduler::{TokenId, Tokens};
use headrace_shard::Sampling;
use headrace_text::SpecialTokens;

use crate::invalid::{Count, Invalid};
use crate::numbers::Key;
use crate::parameters::Parameters;
use crate::state::Limits;
use crate::terms::{BodyTerms, MAX_NAME_BYTES};

/// How the answer goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Whole,
    Stream,
}

/// What limits don't say and validation needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model<'a> {
    pub id: &'a str,
    pub vocab_size: u32,
}

/// A request whose parameters are all right; its prompt's length is still to be seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Checked {
    /// Generations of each prompt.
    pub choices: u32,
    pub sampling: Sampling,
    /// `None`: as many as fit. 0, which only an echo may ask for: the prompt alone.
    pub max_new_tokens: Option<u32>,
    pub ignore_eos: bool,
    pub stop: Vec<String>,
    pub stop_text: StopText,
    /// Whether the texts of single tokens show special ones.
    pub special_tokens: SpecialTokens,
    pub truncate: Option<u32>,
    pub return_full_text: Option<bool>,
    pub details: bool,
    pub grammar: bool,
    pub terms: BodyTerms,
}

/// How many generations the request is: needed before the concurrency limit can be asked.
///
/// 0 counts as 1 on routes that answer at once and is refused where tokens are streamed, as in TGI.
pub(crate) fn best_of(parameters: &Parameters, limits: &Limits, delivery: Delivery) -> Result<u32, Invalid> {
    let given = parameters.best_of.unwrap_or(1);
    match delivery {
        Delivery::Stream if given != 1 => Err(Invalid::BestOfStream { given }),
        Delivery::Stream if parameters.decoder_input_details => Err(Invalid::PrefillDetailsStream),
        Delivery::Whole if given > 1 && limits.max_best_of <= 1 => Err(Invalid::BestOfDisabled { given }),
        Delivery::Whole => {
            check_best_of(given, limits.max_best_of.max(1), limits.max_concurrent_requests)?;
            Ok(given.max(1))
        }
        Delivery::Stream => Ok(1),
    }
}

/// Whether so many answers of each prompt may be drawn: no more than `most`, nor than could ever run at once.
pub(crate) fn check_best_of(given: u32, most: u32, at_once: u32) -> Result<(), Invalid> {
    match given {
        _ if given <= most.min(at_once) => Ok(()),
        _ if at_once < most => Err(Invalid::Choices { field: "best_of", max: at_once, given }),
        _ => Err(Invalid::BestOf { max: most, given }),
    }
}

/// Checks all that can be checked without the prompt's tokens; whether there is one at all is known. `seed` is used where
/// the request draws its own.
pub(crate) fn check(
    inputs_empty: bool,
    parameters: &Parameters,
    best_of: u32,
    limits: &Limits,
    model: Model<'_>,
    delivery: Delivery,
    seed: u64,
) -> Result<Checked, Invalid> {
    check_sampling(parameters, best_of)?;
    check_lengths(parameters, limits)?;
    if best_of > 1 && parameters.seed.is_some() {
        return Err(Invalid::BestOfSeed);
    }
    check_extras(parameters, limits, model)?;
    check_inputs(inputs_empty, parameters, limits)?;
    let terms = terms(parameters)?;
    let details = parameters.details || parameters.decoder_input_details;
    Ok(Checked {
        choices: best_of,
        sampling: resolve_sampling(parameters, best_of, details, delivery, seed),
        max_new_tokens: parameters.max_new_tokens,
        ignore_eos: parameters.ignore_eos_token.unwrap_or(false),
        stop: parameters.stop.clone(),
        stop_text: StopText::Keep,
        special_tokens: SpecialTokens::Show,
        truncate: parameters.truncate,
        return_full_text: parameters.return_full_text,
        details,
        grammar: parameters.grammar.is_some(),
        terms,
    })
}

/// The answer's length in tokens, once the prompt has `input` of them. Of a prompt alone it is 1, as nothing computes a
/// prompt and stops there: there is always room for it, and nobody is shown it.
pub(crate) fn fit(input: usize, checked: &Checked, limits: &Limits) -> Result<Tokens, Invalid> {
    if input == 0 {
        return Err(Invalid::EmptyInputs);
    }
    let new = check_length(Count::Exactly(input), checked, limits)?;
    if new == 0 && checked.max_new_tokens.is_none() {
        return Err(Invalid::TotalTokens { max: limits.max_total_tokens, input: Count::Exactly(input), new });
    }
    if checked.grammar {
        return Err(Invalid::Grammar);
    }
    Ok(Tokens(new.max(1)))
}

/// Refuses a prompt whose `least` tokens, where they are known, are too many already, before anybody has counted all.
pub(crate) fn fit_at_least(least: Option<usize>, checked: &Checked, limits: &Limits) -> Result<(), Invalid> {
    match (checked.truncate, least) {
        (None, Some(least)) => check_length(Count::AtLeast(least), checked, limits).map(drop),
        _ => Ok(()),
    }
}

/// What is left for the answer, or what was asked for.
fn check_length(input: Count, checked: &Checked, limits: &Limits) -> Result<u32, Invalid> {
    let max = limits.max_total_tokens;
    let room = (max as usize).saturating_sub(input.get()) as u32;
    let new = checked.max_new_tokens.unwrap_or(room);
    if input.get().saturating_add(new as usize) > max as usize {
        return Err(Invalid::TotalTokens { max, input, new });
    }
    if input.get() > limits.max_input_tokens as usize {
        return Err(Invalid::InputLength { max: limits.max_input_tokens, input });
    }
    Ok(new)
}

fn check_sampling(p: &Parameters, best_of: u32) -> Result<(), Invalid> {
    let asks_for_sampling = p.do_sample
        || p.temperature.is_some()
        || p.top_k.is_some()
        || p.top_p.is_some()
        || p.typical_p.is_some()
        || p.min_p.is_some();
    if best_of > 1 && !asks_for_sampling {
        return Err(Invalid::BestOfSampling);
    }
    reject(p.temperature, |t| t <= 0.0, |given| Invalid::Temperature { given })?;
    reject(p.repetition_penalty, |r| r <= 0.0, |given| Invalid::RepetitionPenalty { given })?;
    reject(p.frequency_penalty, |f| !(-2.0..=2.0).contains(&f), |given| Invalid::FrequencyPenalty { given })?;
    reject(p.presence_penalty, |f| !(-2.0..=2.0).contains(&f), |given| Invalid::PresencePenalty { given })?;
    reject(p.top_p, |share| share <= 0.0 || share >= 1.0, |given| Invalid::TopP { given })?;
    reject(p.typical_p, |share| share <= 0.0 || share >= 1.0, |given| Invalid::TypicalP { given })?;
    reject(p.min_p, |share| !(0.0..=1.0).contains(&share), |given| Invalid::MinP { given })?;
    reject(p.top_k, |k| k <= 0, |given| Invalid::TopK { given })
}

fn check_lengths(p: &Parameters, limits: &Limits) -> Result<(), Invalid> {
    if p.max_new_tokens == Some(0) {
        return Err(Invalid::NoNewTokens);
    }
    if p.stop.len() > limits.max_stop_sequences as usize {
        return Err(Invalid::StopSequences { max: limits.max_stop_sequences, given: p.stop.len() });
    }
    Ok(())
}

fn check_extras(p: &Parameters, limits: &Limits, model: Model<'_>) -> Result<(), Invalid> {
    let (field, max) = ("top_n_tokens", limits.max_top_n_tokens);
    reject(p.top_n_tokens, |n| n > max, |given| Invalid::TopNTokens { field, max, given })?;
    check_logit_bias(p, model.vocab_size)?;
    if p.watermark {
        return Err(Invalid::Watermark);
    }
    match &p.adapter_id {
        Some(adapter) if !adapter.is_empty() && adapter != model.id => {
            Err(Invalid::Adapter { given: adapter.chars().take(SHOWN_CHARS).collect() })
        }
        _ => Ok(()),
    }
}

fn check_logit_bias(p: &Parameters, vocab_size: u32) -> Result<(), Invalid> {
    let bias = p.logit_bias.iter().flatten();
    if let Some(given) = p.logit_bias.as_ref().map(|bias| bias.len()).filter(|&given| given > MAX_LOGIT_BIAS) {
        return Err(Invalid::LogitBiasSize { max: MAX_LOGIT_BIAS, given });
    }
    for (&Key(token), value) in bias {
        if token >= vocab_size {
            return Err(Invalid::LogitBiasToken { vocab_size, given: token });
        }
        if !(-100.0..=100.0).contains(&value.0) {
            return Err(Invalid::LogitBiasValue { token, given: value.0 });
        }
    }
    Ok(())
}

fn terms(p: &Parameters) -> Result<BodyTerms, Invalid> {
    let salt = p.cache_salt.as_deref();
    if let Some(salt) = salt.filter(|salt| !(1..=MAX_NAME_BYTES).contains(&salt.len())) {
        return Err(Invalid::CacheSalt { max: MAX_NAME_BYTES, given: salt.len() });
    }
    Ok(BodyTerms { priority: p.priority, deadline: p.deadline_ms, cache_salt: salt.map(Into::into) })
}

fn check_inputs(empty: bool, p: &Parameters, limits: &Limits) -> Result<(), Invalid> {
    if empty {
        return Err(Invalid::EmptyInputs);
    }
    let max = limits.max_input_tokens;
    reject(p.truncate, |keep| keep == 0 || keep > max, |given| Invalid::Truncate { max, given })
}

fn reject<T: Copy>(value: Option<T>, bad: impl Fn(T) -> bool, error: impl Fn(T) -> Invalid) -> Result<(), Invalid> {
    match value {
        Some(value) if bad(value) => Err(error(value)),
        _ => Ok(()),
    }
}

/// What the shard is asked: nothing that nobody will look at.
fn resolve_sampling(p: &Parameters, best_of: u32, details: bool, delivery: Delivery, seed: u64) -> Sampling {
    let shown = details || delivery == Delivery::Stream;
    let samples = p.do_sample
        || p.temperature.is_some_and(|t| t != 1.0)
        || p.top_k.is_some()
        || p.top_p.is_some()
        || p.typical_p.is_some()
        || p.min_p.is_some_and(|share| share > 0.0);
    Sampling {
        temperature: if samples { p.temperature.unwrap_or(1.0) } else { 0.0 },
        top_k: p.top_k.map_or(0, i32::unsigned_abs),
        top_p: p.top_p,
        typical_p: p.typical_p,
        min_p: p.min_p,
        repetition_penalty: p.repetition_penalty.filter(|&penalty| penalty != 1.0),
        frequency_penalty: p.frequency_penalty.unwrap_or(0.0),
        presence_penalty: p.presence_penalty.unwrap_or(0.0),
        seed: p.seed.unwrap_or(seed),
        logit_bias: logit_bias(p),
        logprobs: shown || best_of > 1,
        top_n: if shown { p.top_n_tokens.unwrap_or(0) } else { 0 },
        prompt_logprobs: p.decoder_input_details,
    }
}

fn logit_bias(p: &Parameters) -> Vec<(TokenId, f32)> {
    p.logit_bias.iter().flatten().map(|(token, value)| (token.0, value.0)).collect()
}

impl Checked {
    /// The seed that details show for choice `i` of `best_of`: greedy decoding has none.
    pub fn shown_seed(&self, choice: u32) -> Option<u64> {
        (self.sampling.temperature > 0.0).then(|| self.seed(choice))
    }

    /// Choice `i` of a request is what one with this seed alone would get.
    pub fn seed(&self, choice: u32) -> u64 {
        self.sampling.seed.wrapping_add(u64::from(choice))
    }
}

/// For the log: what was asked, without any text of the client's.
impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.sampling;
        write!(f, "best_of={} temperature={} top_k={}", self.choices, s.temperature, s.top_k)?;
        write_some(f, "top_p", s.top_p)?;
        write_some(f, "typical_p", s.typical_p)?;
        write_some(f, "min_p", s.min_p)?;
        write_some(f, "repetition_penalty", s.repetition_penalty)?;
        write!(f, " frequency_penalty={} presence_penalty={}", s.frequency_penalty, s.presence_penalty)?;
        write_some(f, "max_new_tokens", self.max_new_tokens)?;
        write_some(f, "truncate", self.truncate)?;
        write!(f, " stop={} logit_bias={} top_n_tokens={}", self.stop.len(), s.logit_bias.len(), s.top_n)?;
        write!(f, " details={} decoder_input_details={}", self.details, s.prompt_logprobs)?;
        write!(f, " ignore_eos_token={}", self.ignore_eos)?;
        write_some(f, "priority", self.terms.priority)?;
        write_some(f, "deadline_ms", self.terms.deadline)
    }
}

fn write_some(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
}

/// Tokens of one `logit_bias`: as many as OpenAI's clients may send, and then some.
const MAX_LOGIT_BIAS: usize = 1024;

/// Characters of a client's text that an error repeats.
const SHOWN_CHARS: usize = 100;

#[cfg(test)]
mod tests;
