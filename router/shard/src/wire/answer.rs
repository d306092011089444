//! The ranks' answers to one step as one result.

use std::iter::zip;

use headrace_scheduler::{Row, StepId};

use super::pack::{unpack_f32, unpack_u32};
use crate::error::ShardError;
use crate::expected::Expected;
use crate::proto;
use crate::result::{SampledToken, StepError, StepResult, StepTiming};

/// Samples are rank 0's; an error of any rank counts, of a row or of the step.
///
/// # Errors
/// `Protocol` for an answer that does not hold what the step asked for, naming the field and both numbers.
pub(crate) fn result(
    expected: &Expected,
    answers: &[proto::StepResult],
    vocab_size: u32,
) -> Result<StepResult, ShardError> {
    let mut result = empty(expected.step);
    result.error = step_error(answers);
    let Some(first) = answers.first() else { return Ok(result) };
    result.timing = timing(first);
    if result.error.is_some() {
        return Ok(result);
    }
    result.row_errors = row_errors(expected, answers)?;
    arrays(expected, first, vocab_size, &mut result).map_err(|reason| ShardError::Protocol {
        rank: 0,
        reason: format!("in its answer to step {}, {reason}", expected.step),
    })?;
    Ok(result)
}

fn empty(step: StepId) -> StepResult {
    StepResult {
        step,
        samples: Vec::new(),
        prompt_logprobs: Vec::new(),
        row_errors: Vec::new(),
        error: None,
        timing: StepTiming::default(),
    }
}

fn timing(answer: &proto::StepResult) -> StepTiming {
    answer.timing.map_or(StepTiming::default(), |timing| StepTiming {
        inbox_us: timing.inbox_us,
        forward_us: timing.forward_us,
        sampling_us: timing.sampling_us,
    })
}

/// The lowest rank's sentence, with its name. Memory is all that was missing if it was on every rank that failed.
fn step_error(answers: &[proto::StepResult]) -> Option<StepError> {
    let failed = || answers.iter().filter(|answer| answer.error.is_some());
    let out_of_memory = failed().all(|answer| answer.out_of_memory);
    let mut errors = (0u32..).zip(answers).filter_map(|(rank, answer)| Some((rank, answer.error.as_ref()?)));
    errors.next().map(|(rank, error)| StepError { sentence: format!("rank {rank}: {error}"), out_of_memory })
}

/// Each failed row once, with the lowest rank's sentence.
fn row_errors(expected: &Expected, answers: &[proto::StepResult]) -> Result<Vec<(Row, String)>, ShardError> {
    let mut failed: Vec<(Row, String)> = Vec::new();
    for (rank, answer) in (0u32..).zip(answers) {
        for error in &answer.row_errors {
            let row = Row(error.row);
            if !expected.has_row(row) {
                let reason = format!("it reports an error of row {row}, which is not in step {}", expected.step);
                return Err(ShardError::Protocol { rank, reason });
            }
            if !failed.iter().any(|(known, _)| *known == row) {
                failed.push((row, format!("rank {rank}: {}", error.message)));
            }
        }
    }
    Ok(failed)
}

fn arrays(
    expected: &Expected,
    answer: &proto::StepResult,
    vocab_size: u32,
    result: &mut StepResult,
) -> Result<(), String> {
    let tokens = unpack_u32("token_ids", &answer.token_ids, expected.sampling.len())?;
    result.samples = tokens.map(|token| SampledToken { token, logprob: None, top: Vec::new() }).collect();
    logprobs(expected, answer, &mut result.samples)?;
    tops(expected, answer, &mut result.samples)?;
    prompt_logprobs(expected, answer, result)?;
    blank_failed(expected, result);
    check_ids(&result.samples, vocab_size)
}

fn logprobs(expected: &Expected, answer: &proto::StepResult, samples: &mut [SampledToken]) -> Result<(), String> {
    let reports = || expected.reports.iter().filter(|report| report.logprob);
    let logprobs = unpack_f32("logprobs", &answer.logprobs, reports().count())?;
    zip(reports(), logprobs).for_each(|(report, logprob)| samples[report.sample].logprob = Some(logprob));
    Ok(())
}

fn tops(expected: &Expected, answer: &proto::StepResult, samples: &mut [SampledToken]) -> Result<(), String> {
    let count = expected.reports.iter().map(|report| report.top_n).sum();
    let ids = unpack_u32("top_ids", &answer.top_ids, count)?;
    let logprobs = unpack_f32("top_logprobs", &answer.top_logprobs, count)?;
    let mut pairs = zip(ids, logprobs);
    for report in &expected.reports {
        samples[report.sample].top.extend(pairs.by_ref().take(report.top_n));
    }
    Ok(())
}

fn prompt_logprobs(expected: &Expected, answer: &proto::StepResult, result: &mut StepResult) -> Result<(), String> {
    let count = expected.prompts.iter().map(|(_, positions)| positions).sum();
    let mut logprobs = unpack_f32("prompt_logprobs", &answer.prompt_logprobs, count)?;
    let chunk = |&(request, positions): &_| (request, logprobs.by_ref().take(positions).collect());
    result.prompt_logprobs = expected.prompts.iter().map(chunk).collect();
    Ok(())
}

/// A row that failed on another rank has a token of rank 0's, which means nothing.
fn blank_failed(expected: &Expected, result: &mut StepResult) {
    for (failed, _) in &result.row_errors {
        if let Some(place) = expected.sampling.iter().position(|row| row == failed) {
            let sample = &mut result.samples[place];
            *sample = SampledToken { token: 0, logprob: sample.logprob.map(|_| f32::NAN), top: Vec::new() };
        }
    }
}

fn check_ids(samples: &[SampledToken], vocab_size: u32) -> Result<(), String> {
    let top = samples.iter().flat_map(|sample| sample.top.iter().map(|(token, _)| *token));
    match samples.iter().map(|sample| sample.token).chain(top).find(|token| *token >= vocab_size) {
        Some(token) => Err(format!("there is token id {token}, the vocabulary has {vocab_size}")),
        None => Ok(()),
    }
}
