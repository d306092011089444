//! A shard that computes nothing: it knows how long every answer is, and samples accordingly.

use std::collections::HashMap;

use headrace_scheduler::{RequestId, Sample, StepPlan, TokenId, Tokens};

use crate::tokens::{END_OF_SEQUENCE, id};

#[derive(Default)]
pub(crate) struct PretendShard {
    answers: HashMap<RequestId, Answer>,
}

/// What the model "wants" to say.
pub(crate) struct Answer {
    pub prompt: Tokens,
    /// Its last token is an end of sequence.
    pub length: Tokens,
    pub tokens: AnswerTokens,
}

pub(crate) enum AnswerTokens {
    /// Ids that count from the number of the first.
    From(u64),
    /// As a trace names them.
    These(Vec<TokenId>),
}

impl PretendShard {
    pub fn expect(&mut self, request: RequestId, answer: Answer) {
        self.answers.insert(request, answer);
    }

    pub fn forget(&mut self, request: RequestId) {
        self.answers.remove(&request);
    }

    /// One sample for each sampling row, in the plan's order. Which token it is follows from the position alone, so it
    /// comes out the same after a preemption.
    pub fn sample(&self, plan: &StepPlan) -> Vec<Sample> {
        let chunks = plan.chunks.iter().filter(|chunk| chunk.samples);
        let chunks = chunks.map(|chunk| (chunk.request, chunk.start + chunk.tokens));
        let decodes = plan.decodes.iter().map(|decode| (decode.request, decode.position + Tokens(1)));
        chunks.chain(decodes).map(|(request, position)| Sample::Token(self.token(request, position))).collect()
    }

    /// The token at a position. Rows of requests that have ended meanwhile sample something that nobody reads.
    fn token(&self, request: RequestId, position: Tokens) -> u32 {
        let Some(answer) = self.answers.get(&request) else { return END_OF_SEQUENCE };
        let index = position.saturating_sub(answer.prompt);
        if index + Tokens(1) >= answer.length {
            return END_OF_SEQUENCE;
        }
        match &answer.tokens {
            AnswerTokens::From(first) => id(first + u64::from(index.0)),
            AnswerTokens::These(ids) => ids.get(index.0 as usize).copied().unwrap_or(END_OF_SEQUENCE),
        }
    }
}
