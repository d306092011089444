//! A step's result becomes tokens, updates and ends.

use std::collections::VecDeque;
use std::time::Instant;

use headrace_scheduler::{
    Event, FinishReason as Ended, Micros, Overload, OverloadCause, Rejected, RequestId, Row, Sample, StepOutcome,
    StepPlan,
};
use headrace_shard::{SampledToken, StepError, StepResult};

use crate::answer::Growth;
use crate::driver::Driver;
use crate::generation::{FinishReason, GenerationError};
use crate::mailbox::Full;
use crate::pacing::{Kind, Shape};
use crate::telemetry::{CancelCause, Landed};

/// Steps sent whose result has not come, oldest first.
#[derive(Default)]
pub(crate) struct SentSteps {
    plans: VecDeque<StepPlan>,
}

impl SentSteps {
    pub(crate) fn push(&mut self, plan: StepPlan) {
        self.plans.push_back(plan);
    }

    pub(crate) fn len(&self) -> usize {
        self.plans.len()
    }

    pub(crate) fn clear(&mut self) {
        self.plans.clear();
    }

    /// The plan of the step that landed: results come in the order of the plans.
    fn land(&mut self) -> Option<StepPlan> {
        self.plans.pop_front()
    }
}

impl Driver {
    /// Takes a step's result: every token it holds lies in its reader's mailbox when this returns.
    pub(crate) fn land(&mut self, mut result: StepResult) {
        let Some(plan) = self.sent.land() else { return };
        let now = self.now();
        let computed = result.error.is_none();
        let spent = self.pacing.landed(result.timing, computed, now);
        let kind = Shape::of(&plan).kind;
        let began = Instant::now();
        self.note_failures(&plan, &result);
        self.note_prompt_logprobs(&plan, &result);
        self.note_progress(&plan, &result);
        let outcome = outcome_of(&plan, &result);
        self.scheduler.complete_step(result.step, outcome, now);
        self.deliver_events(&mut result.samples, now);
        let text = began.elapsed();
        self.telemetry.landed(&Landed { kind, computed, timing: result.timing, spent, text });
        if let Some(error) = &result.error {
            let method = if kind == Kind::Prefill { "prefill" } else { "decode" };
            let (step, tokens, error) = (result.step.0, plan.tokens().0, &error.sentence);
            // One token that found no memory has failed: nothing smaller can be tried.
            let smaller = self.scheduler.step_limit().filter(|most| *most < plan.tokens());
            match smaller.filter(|_| ran_out_of_memory(&result)) {
                Some(most) => tracing::warn!(
                    step,
                    method,
                    tokens,
                    error,
                    "a step ran out of memory; its requests are computed again, in steps of at most {most} tokens"
                ),
                None => tracing::error!(step, method, error, "a step failed"),
            }
        }
    }

    /// Remembers the shard's sentences until the scheduler ends the requests they are about.
    fn note_failures(&mut self, plan: &StepPlan, result: &StepResult) {
        for (row, sentence) in &result.row_errors {
            if let Some(answer) = request_of(plan, *row).and_then(|request| self.answers.get_mut(&request)) {
                answer.failure = Some(sentence.clone());
            }
        }
        let Some(StepError { sentence, .. }) = &result.error else { return };
        for request in requests_of(plan) {
            if let Some(answer) = self.answers.get_mut(&request) {
                answer.failure = Some(sentence.clone());
            }
        }
    }

    fn note_prompt_logprobs(&mut self, plan: &StepPlan, result: &StepResult) {
        for (request, logprobs) in &result.prompt_logprobs {
            let chunk = plan.chunks.iter().find(|chunk| chunk.request == *request);
            if let (Some(chunk), Some(answer)) = (chunk, self.answers.get_mut(request)) {
                answer.add_prompt_logprobs(chunk.start, logprobs);
            }
        }
    }

    /// For those whose progress somebody looks at.
    fn note_progress(&mut self, plan: &StepPlan, result: &StepResult) {
        if self.followed == 0 {
            return;
        }
        let now = tokio::time::Instant::now();
        for request in requests_of(plan) {
            if let Some(progress) = self.answers.get(&request).and_then(|answer| answer.progress.as_ref()) {
                progress.landed(result.timing, now);
            }
        }
    }

    /// Deals with all that the scheduler has to say. `samples` are those of the step that just landed.
    pub(crate) fn deliver_events(&mut self, samples: &mut [SampledToken], now: Micros) {
        let mut grown = std::mem::take(&mut self.grown);
        while let Some(event) = self.scheduler.poll_event() {
            match event {
                Event::Token { request, token, sample, .. } => {
                    let Some(answer) = self.answers.get_mut(&request) else { continue };
                    let Growth { stopped, wait } = answer.push(token, samples.get(sample as usize), now);
                    self.totals.generated_tokens += 1;
                    self.telemetry.waited(wait);
                    if stopped {
                        self.scheduler.stop(request, now);
                        self.end_with(request, FinishReason::StopString);
                    } else {
                        grown.push(request);
                    }
                }
                Event::Preempted { request } => {
                    self.vacate(request);
                    if let Some(progress) = self.answers.get(&request).and_then(|answer| answer.progress.as_ref()) {
                        progress.preempted();
                    }
                }
                Event::Finished { request, reason, .. } => self.finished(request, reason),
            }
        }
        grown.drain(..).for_each(|request| self.flush(request, now));
        self.grown = grown;
    }

    /// Delivers the newest token of an answer that goes on; an answer that ended has delivered it already.
    fn flush(&mut self, request: RequestId, now: Micros) {
        let Some(answer) = self.answers.get_mut(&request) else { return };
        if let Err(Full { unread }) = answer.flush() {
            self.scheduler.cancel(request, now);
            self.telemetry.cancelled(CancelCause::SlowReader);
            if let Some(answer) = self.remove(request) {
                answer.fail(GenerationError::SlowReader { unread });
            }
        } else if !std::mem::replace(&mut answer.untold, true) {
            self.untold.push(request);
        }
    }

    /// Wakes the readers of what was delivered. An end has told its reader by itself.
    pub(crate) fn tell_readers(&mut self) {
        for request in self.untold.drain(..) {
            if let Some(answer) = self.answers.get_mut(&request) {
                answer.tell_reader();
            }
        }
    }

    /// An answer that the engine ended itself, by a stop string or a cancellation, is gone already.
    fn finished(&mut self, request: RequestId, reason: Ended) {
        match reason {
            Ended::Length => self.end_with(request, FinishReason::Length),
            Ended::EndOfSequence => self.end_with(request, FinishReason::EndOfSequence),
            Ended::StopString => self.end_with(request, FinishReason::StopString),
            Ended::Cancelled => drop(self.remove(request)),
            Ended::DeadlineMissed => {
                let retry_after = self.scheduler.drain_time();
                self.fail_with(request, GenerationError::DeadlineMissed { retry_after });
            }
            Ended::Displaced => {
                let retry_after = self.scheduler.drain_time();
                let overload = Overload { cause: OverloadCause::Displaced, retry_after };
                self.fail_with(request, GenerationError::Rejected(Rejected::Overloaded(overload)));
            }
            Ended::Failed => {
                if let Some(mut answer) = self.remove(request) {
                    let sentence = answer.failure.take().unwrap_or_else(|| "the shard sampled no token".to_owned());
                    answer.fail(GenerationError::Shard(sentence));
                }
            }
        }
    }

    fn fail_with(&mut self, request: RequestId, error: GenerationError) {
        if let Some(answer) = self.remove(request) {
            answer.fail(error);
        }
    }

    fn end_with(&mut self, request: RequestId, reason: FinishReason) {
        if let Some(answer) = self.remove(request) {
            answer.finish(reason);
        }
    }
}

fn ran_out_of_memory(result: &StepResult) -> bool {
    result.error.as_ref().is_some_and(|error| error.out_of_memory)
}

fn outcome_of(plan: &StepPlan, result: &StepResult) -> StepOutcome {
    if result.error.is_some() {
        return if ran_out_of_memory(result) { StepOutcome::OutOfMemory } else { StepOutcome::Failed };
    }
    let failed: Vec<Row> = result.row_errors.iter().map(|(row, _)| *row).collect();
    let sample = |(sampled, (_, row)): (&SampledToken, (RequestId, Row))| {
        if failed.contains(&row) { Sample::Failed } else { Sample::Token(sampled.token) }
    };
    let samples = result.samples.iter().zip(plan.sampling_rows()).map(sample).collect();
    let took = Micros(u64::from(result.timing.forward_us) + u64::from(result.timing.sampling_us));
    StepOutcome::Done { samples, failed, took }
}

/// Every request of a step with its row.
fn rows_of(plan: &StepPlan) -> impl Iterator<Item = (Row, RequestId)> + '_ {
    let chunks = plan.chunks.iter().map(|chunk| (chunk.row, chunk.request));
    chunks.chain(plan.decodes.iter().map(|decode| (decode.row, decode.request)))
}

fn requests_of(plan: &StepPlan) -> impl Iterator<Item = RequestId> + '_ {
    rows_of(plan).map(|(_, request)| request)
}

fn request_of(plan: &StepPlan, row: Row) -> Option<RequestId> {
    rows_of(plan).find(|(of, _)| *of == row).map(|(_, request)| request)
}
