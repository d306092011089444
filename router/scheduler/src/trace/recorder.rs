//! Writes a segment: hides what is said, keeps what matters to the scheduler.

use std::collections::{BTreeMap, VecDeque};

use crate::plan::{Sample, StepOutcome, StepPlan};
use crate::request::Request;
use crate::scheduler::Scheduler;
use crate::trace::names::Names;
use crate::trace::record::{Arrival, Ended, MAGIC, Outcome, PlanRecord, Record, write};
use crate::units::{Blocks, Micros, RequestId, StepId, TokenId, Tokens};

pub(crate) struct Recorder {
    block_size: Tokens,
    eos: Vec<TokenId>,
    names: Names,
    /// What of each unfinished request's tokens fills no block yet.
    tails: BTreeMap<RequestId, Tail>,
    /// Who samples in the steps in flight.
    sampling: VecDeque<(StepId, Vec<RequestId>)>,
    bytes: Vec<u8>,
    written: u64,
}

struct Tail {
    /// Full blocks before it.
    blocks: u32,
    tokens: Vec<TokenId>,
}

impl Recorder {
    /// Begins a segment. Costs a copy of the scheduler, and a look-up of every block it knows: some milliseconds.
    pub fn begin(scheduler: &Scheduler, sampling: VecDeque<(StepId, Vec<RequestId>)>) -> Self {
        let block_size = scheduler.config.block_size;
        let mut names = Names::default();
        let snapshot = names.hide_all(scheduler);
        let mut bytes = MAGIC.to_vec();
        write(&mut bytes, &snapshot);
        let tails = scheduler
            .sequences
            .handles()
            .map(|handle| (handle.request, Tail::of(&scheduler.sequences[handle].tokens, block_size)));
        let tails = tails.collect();
        let eos = scheduler.config.eos.clone();
        Self { block_size, eos, names, tails, sampling, bytes, written: 0 }
    }

    /// What is recorded and not taken yet.
    pub fn take(&mut self) -> Vec<u8> {
        self.written += self.bytes.len() as u64;
        std::mem::take(&mut self.bytes)
    }

    /// Bytes of the segment so far.
    pub fn len(&self) -> u64 {
        self.written + self.bytes.len() as u64
    }

    pub fn into_sampling(self) -> VecDeque<(StepId, Vec<RequestId>)> {
        self.sampling
    }

    pub fn record(&mut self, record: &Record) {
        write(&mut self.bytes, record);
    }

    pub fn submitted(&mut self, request: &Request, at: Micros, taken: Option<RequestId>) {
        let size = self.block_size.0 as usize;
        let arrival = Arrival {
            prompt: Tokens(request.prompt.len() as u32),
            blocks: request.prompt.chunks_exact(size).map(|block| self.names.block(block)).collect(),
            root: self.names.root(&request.root),
            max_new_tokens: request.max_new_tokens,
            ignore_eos: request.ignore_eos,
            tenant: request.tenant,
            priority: request.priority,
            deadline: request.deadline,
            reads_cache: request.reads_cache,
            fork_of: request.fork_of,
        };
        self.record(&Record::Submitted { at, arrival, taken: taken.is_some() });
        if let Some(id) = taken {
            self.tails.insert(id, Tail::of(&request.prompt, self.block_size));
        }
    }

    pub fn planned(&mut self, at: Micros, plan: Option<&StepPlan>) {
        self.record(&Record::Planned { at, plan: plan.map(PlanRecord::of) });
        if let Some(plan) = plan {
            let sampling = plan.sampling_rows().map(|(request, _)| request).collect();
            self.sampling.push_back((plan.step, sampling));
        }
    }

    /// Before the scheduler takes the outcome: who has ended meanwhile gets no tokens any more.
    pub fn landed(&mut self, step: StepId, outcome: &StepOutcome, at: Micros) {
        let ours = self.sampling.front().is_some_and(|(oldest, _)| *oldest == step);
        let sampling = if ours { self.sampling.pop_front().map(|(_, rows)| rows) } else { None };
        let (samples, failed, took) = match outcome {
            StepOutcome::Done { samples, failed, took } => (samples, failed, took),
            StepOutcome::Failed => return self.record(&Record::Landed { at, step, ended: Ended::Failed }),
            StepOutcome::OutOfMemory => return self.record(&Record::Landed { at, step, ended: Ended::OutOfMemory }),
        };
        let places = |wanted: &dyn Fn(&Sample) -> bool| {
            samples.iter().enumerate().filter(|(_, sample)| wanted(sample)).map(|(place, _)| place as u32).collect()
        };
        let outcome = Outcome {
            took: *took,
            samples: samples.len() as u32,
            ends: places(&|sample| matches!(sample, Sample::Token(token) if self.eos.contains(token))),
            failed_samples: places(&|sample| matches!(sample, Sample::Failed)),
            failed_rows: failed.iter().map(|row| row.0).collect(),
        };
        self.record(&Record::Landed { at, step, ended: Ended::Done(outcome) });
        for (request, sample) in sampling.into_iter().flatten().zip(samples) {
            if let Sample::Token(token) = sample {
                self.grow(request, *token);
            }
        }
    }

    pub fn session_lost(&mut self, at: Micros) {
        self.sampling.clear();
        self.record(&Record::SessionLost { at });
    }

    pub fn finished(&mut self, request: RequestId) {
        self.tails.remove(&request);
    }

    fn grow(&mut self, request: RequestId, token: TokenId) {
        let Some(tail) = self.tails.get_mut(&request) else { return };
        tail.tokens.push(token);
        if tail.tokens.len() == self.block_size.0 as usize {
            let (index, number) = (Blocks(tail.blocks), self.names.block(&tail.tokens));
            tail.blocks += 1;
            tail.tokens.clear();
            self.record(&Record::Filled { request, index, number });
        }
    }
}

impl Tail {
    fn of(tokens: &[TokenId], block_size: Tokens) -> Self {
        let size = block_size.0 as usize;
        let full = tokens.len() / size;
        Self { blocks: full as u32, tokens: tokens[full * size..].to_vec() }
    }
}
