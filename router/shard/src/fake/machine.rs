//! Executes plans and checks every claim they make.
//!
//! A claim that does not hold is a *violation*: the whole step fails with a sentence that starts with
//! "violation", and its rows fail in every later step until they are given away, as the protocol says of failed steps.

use headrace_scheduler::{Admission, BlockId, Chunk, Decode, Epoch, Row, StepPlan};

use super::handle::{Failures, Pool, StepFailure};
use super::kv::KvCache;
use super::tokens::{EMPTY, TokenRule, fold, logprob, position_logprob, top};
use crate::facts::ShardFacts;
use crate::result::{SampledToken, StepError, StepResult, StepTiming};
use crate::sampling::Sampling;
use crate::wire::table;

/// The state of one session: its rows and its KV.
#[derive(Debug)]
pub(super) struct Machine {
    rule: TokenRule,
    vocab_size: u32,
    max_positions: usize,
    rows: Vec<RowState>,
    kv: KvCache,
    /// The newest epoch of the session, 0 before the first.
    newest: Epoch,
    /// What a Filter got wrong; Filters have no error, so the next step reports it.
    pending: Option<String>,
}

/// What the fake knows of one row.
#[derive(Debug, Default)]
struct RowState {
    holder: Option<Epoch>,
    /// Digest after each known token.
    history: Vec<u64>,
    /// How many of them are computed.
    computed: usize,
    logprobs: bool,
    top_n: u32,
    prompt_logprobs: bool,
    /// Why the row fails, until it is given away.
    failure: Option<&'static str>,
    /// The last step that named this row: a step names it once.
    seen: u64,
}

impl Machine {
    pub(super) fn new(facts: &ShardFacts, rule: TokenRule, pool: Pool) -> Self {
        Self {
            rule,
            vocab_size: facts.vocab_size,
            max_positions: facts.max_positions.0 as usize,
            rows: (0..pool.max_batch_size).map(|_| RowState::default()).collect(),
            kv: KvCache::new(pool.blocks, pool.host_blocks, facts.block_size),
            newest: Epoch(0),
            pending: None,
        }
    }

    /// Lets rows go whose epoch is the one that ended. Late Filters and unknown rows are no error; an epoch that has
    /// not begun is.
    pub(super) fn filter(&mut self, rows: &[(Row, Epoch)]) {
        for &(row, epoch) in rows {
            let Some(state) = self.rows.get_mut(row.0 as usize) else { continue };
            match state.holder {
                Some(holder) if holder == epoch => state.holder = None,
                Some(holder) if holder < epoch => {
                    self.pending = Some(format!("Filter ends epoch {epoch} of row {row}, which is held by {holder}"));
                }
                _ => {}
            }
        }
    }

    /// One forward pass. `plan` and `sampling` have been checked to be sendable.
    pub(super) fn step(&mut self, plan: &StepPlan, sampling: &[Sampling], failures: &Failures) -> StepResult {
        let mut result = StepResult {
            step: plan.step,
            samples: Vec::with_capacity(plan.chunks.len() + plan.decodes.len()),
            prompt_logprobs: Vec::new(),
            row_errors: Vec::new(),
            error: None,
            timing: StepTiming::default(),
        };
        let injected = failures.step.map_or(Ok(()), |kind| Err(kind.sentence().into()));
        // Whose KV leaves is in no row of this step: it leaves even if the step fails.
        let swapped = self.kv.swap(&plan.swaps_out, &plan.swaps_in);
        let outcome = self
            .admit(plan, sampling)
            .and(injected)
            .and_then(|()| self.check_filters())
            .and(swapped)
            .and_then(|()| self.kv.copy(&plan.copies))
            .and_then(|()| self.compute(plan, failures, &mut result));
        if let Err(reason) = outcome {
            self.break_rows(plan);
            result.samples.clear();
            result.prompt_logprobs.clear();
            result.row_errors.clear();
            let out_of_memory = failures.step == Some(StepFailure::Memory);
            result.error = Some(StepError { sentence: format!("rank 0: {reason}"), out_of_memory });
        }
        result
    }

    fn admit(&mut self, plan: &StepPlan, sampling: &[Sampling]) -> Result<(), String> {
        for (admission, sampling) in plan.admitted.iter().zip(sampling) {
            self.check_admission(plan, admission, sampling)
                .map_err(|claim| format!("violation: row {} {claim}", admission.row))?;
            self.newest = admission.epoch;
            self.rows[admission.row.0 as usize].hold(admission, sampling);
        }
        Ok(())
    }

    fn check_admission(&self, plan: &StepPlan, admission: &Admission, sampling: &Sampling) -> Result<(), String> {
        let (known, computed) = (admission.tokens.len(), admission.computed.0 as usize);
        let rows = self.rows.len();
        if admission.row.0 as usize >= rows {
            return Err(format!("is outside the batch of {rows} rows"));
        }
        if admission.epoch <= self.newest {
            return Err(format!("is admitted as epoch {}, but epoch {} has begun", admission.epoch, self.newest));
        }
        if known == 0 || admission.generated.0 as usize >= known || computed >= known {
            let generated = admission.generated;
            return Err(format!("has {known} tokens, {generated} of them generated and {computed} computed"));
        }
        if let Some(token) = admission.tokens.iter().find(|token| **token >= self.vocab_size) {
            return Err(format!("has token {token} of a vocabulary of {}", self.vocab_size));
        }
        if sampling.prompt_logprobs && computed > 0 {
            return Err(format!("asks for prompt log-probabilities with {computed} tokens computed already"));
        }
        if !plan.chunks.iter().any(|chunk| chunk.row == admission.row) {
            return Err("is admitted without a chunk".into());
        }
        Ok(())
    }

    fn check_filters(&mut self) -> Result<(), String> {
        self.pending.take().map_or(Ok(()), |claim| Err(format!("violation: {claim}")))
    }

    fn compute(&mut self, plan: &StepPlan, failures: &Failures, result: &mut StepResult) -> Result<(), String> {
        for chunk in &plan.chunks {
            let table = table(plan, &chunk.blocks)?;
            self.chunk(plan, chunk, table, failures, result).map_err(|claim| said_of(chunk.row, claim))?;
        }
        for decode in &plan.decodes {
            let table = table(plan, &decode.blocks)?;
            self.decode(plan, decode, table, failures, result).map_err(|claim| said_of(decode.row, claim))?;
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        plan: &StepPlan,
        chunk: &Chunk,
        table: &[BlockId],
        failures: &Failures,
        result: &mut StepResult,
    ) -> Result<(), String> {
        let state = RowState::of(&mut self.rows, chunk.row, plan)?;
        if state.fails(chunk.row, failures, result) {
            state.report_failed_chunk(chunk, result);
            return Ok(());
        }
        let (start, end, known) = (state.computed, state.computed + chunk.tokens.0 as usize, state.history.len());
        if chunk.start.0 as usize != start {
            return Err(format!("has a chunk from position {}, but {start} are computed", chunk.start));
        }
        if chunk.tokens.0 == 0 || end > known {
            return Err(format!("has a chunk of {} tokens, {} are left", chunk.tokens, known - start));
        }
        if chunk.samples != (end == known) {
            return Err(format!("ends a chunk at {end} of {known} tokens, but samples is {}", chunk.samples));
        }
        self.kv.check_table(table, end)?;
        self.kv.check_all(table, &state.history, start)?;
        self.kv.fill(table, &state.history, start, end);
        state.computed = end;
        if state.prompt_logprobs {
            let logprobs = (start..end).map(|position| position_logprob(position, state.history[position]));
            result.prompt_logprobs.push((chunk.request, logprobs.collect()));
        }
        if chunk.samples {
            result.samples.push(state.sample(&self.rule, self.vocab_size));
        }
        Ok(())
    }

    fn decode(
        &mut self,
        plan: &StepPlan,
        decode: &Decode,
        table: &[BlockId],
        failures: &Failures,
        result: &mut StepResult,
    ) -> Result<(), String> {
        let state = RowState::of(&mut self.rows, decode.row, plan)?;
        if state.fails(decode.row, failures, result) {
            result.samples.push(state.failed_sample());
            return Ok(());
        }
        let position = state.computed;
        if decode.position.0 as usize != position {
            return Err(format!("decodes position {}, but {position} are computed", decode.position));
        }
        if position == 0 || state.history.len() != position + 1 {
            return Err(format!("decodes after {position} of {} prompt tokens", state.history.len()));
        }
        if position >= self.max_positions {
            return Err(format!("decodes position {position}, the model has {}", self.max_positions));
        }
        self.kv.check_table(table, position + 1)?;
        self.kv.check_some(table, &state.history, position, plan.step.0)?;
        self.kv.fill(table, &state.history, position, position + 1);
        state.computed = position + 1;
        result.samples.push(state.sample(&self.rule, self.vocab_size));
        Ok(())
    }

    fn break_rows(&mut self, plan: &StepPlan) {
        let chunks = plan.chunks.iter().map(|chunk| chunk.row);
        for row in chunks.chain(plan.decodes.iter().map(|decode| decode.row)) {
            if let Some(state) = self.rows.get_mut(row.0 as usize) {
                state.failure = Some("the row was in a step that failed");
            }
        }
    }
}

fn said_of(row: Row, claim: String) -> String {
    format!("violation: row {row} {claim}")
}

impl RowState {
    /// The row, if it is held and this step has not named it before.
    fn of<'a>(rows: &'a mut [RowState], row: Row, plan: &StepPlan) -> Result<&'a mut RowState, String> {
        let state = rows.get_mut(row.0 as usize).filter(|state| state.holder.is_some()).ok_or("is not held")?;
        if state.seen == plan.step.0 {
            return Err("is named twice".into());
        }
        state.seen = plan.step.0;
        Ok(state)
    }

    fn hold(&mut self, admission: &Admission, sampling: &Sampling) {
        self.holder = Some(admission.epoch);
        self.computed = admission.computed.0 as usize;
        self.logprobs = sampling.logprobs;
        self.top_n = sampling.top_n;
        self.prompt_logprobs = sampling.prompt_logprobs;
        self.failure = None;
        self.history.clear();
        let mut digest = EMPTY;
        self.history.extend(admission.tokens.iter().map(|&token| {
            digest = fold(digest, token);
            digest
        }));
    }

    /// Does the row fail alone here, now or since earlier? Then its error is in the result.
    fn fails(&mut self, row: Row, failures: &Failures, result: &mut StepResult) -> bool {
        if failures.rows.contains(&row) {
            self.failure = Some("injected failure of the row");
        }
        let Some(reason) = self.failure else { return false };
        result.row_errors.push((row, format!("rank 0: {reason}")));
        true
    }

    fn report_failed_chunk(&self, chunk: &Chunk, result: &mut StepResult) {
        if self.prompt_logprobs {
            result.prompt_logprobs.push((chunk.request, vec![f32::NAN; chunk.tokens.0 as usize]));
        }
        if chunk.samples {
            result.samples.push(self.failed_sample());
        }
    }

    fn failed_sample(&self) -> SampledToken {
        SampledToken { token: 0, logprob: self.logprobs.then_some(f32::NAN), top: Vec::new() }
    }

    /// The token that follows the history, which it becomes a part of.
    fn sample(&mut self, rule: &TokenRule, vocab_size: u32) -> SampledToken {
        let digest = self.history.last().copied().unwrap_or(EMPTY);
        let token = rule.next(digest, vocab_size);
        self.history.push(fold(digest, token));
        let logprob = logprob(digest);
        SampledToken {
            token,
            logprob: self.logprobs.then_some(logprob),
            top: top(token, logprob, self.top_n, vocab_size),
        }
    }
}
