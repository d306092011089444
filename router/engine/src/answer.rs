//! One request on its way: what it asked, what it has got so far, and when.

use std::sync::Arc;
use std::time::Duration;

use headrace_scheduler::{Micros, Tenant, TokenId, Tokens};
use headrace_shard::{SampledToken, Sampling};
use headrace_text::Tokenizer;
use tokio::time::Instant;

use crate::answer_text::AnswerText;
use crate::generation::{
    FinishReason, Finished, GeneratedToken, GenerationError, GenerationRequest, Timings, TopToken, Update,
};
use crate::mailbox::Full;
use crate::progress::Progress;
use crate::stream::Deliverer;

/// Everything the engine keeps of a request between submission and end.
pub(crate) struct Answer {
    tokenizer: Arc<Tokenizer>,
    deliverer: Deliverer,
    pub sampling: Sampling,
    pub tenant: Tenant,
    /// Prompt and answer tokens at most.
    pub budget: u64,
    /// The shard's sentence about this request alone.
    pub failure: Option<String>,
    /// It holds a row of the batch.
    pub running: bool,
    /// Its reader was not told yet of what was delivered.
    pub untold: bool,
    text: AnswerText,
    prompt: Option<PromptLogprobs>,
    /// The newest token, delivered when it is known whether the answer goes on.
    pending: Option<GeneratedToken>,
    generated: Tokens,
    /// When the client's request was there.
    arrived: Micros,
    submitted: Micros,
    /// When it first got a row, and how many of its tokens were cached then.
    admitted: Option<(Micros, Tokens)>,
    first_token: Option<Micros>,
    last_token: Micros,
    /// Where its caller sees how far it has come.
    pub progress: Option<Arc<Progress>>,
}

/// What a token brought.
pub(crate) struct Growth {
    /// A stop string is complete.
    pub stopped: bool,
    pub wait: Wait,
}

/// How long a token was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The first one, since the client's request was there.
    First(Micros),
    /// Since the token before it.
    Next(Micros),
}

impl Answer {
    pub(crate) fn new(
        request: &GenerationRequest,
        deliverer: Deliverer,
        tokenizer: &Arc<Tokenizer>,
        tenant: Tenant,
        arrived: Micros,
        submitted: Micros,
    ) -> Self {
        Self {
            tokenizer: tokenizer.clone(),
            deliverer,
            sampling: request.sampling.clone(),
            tenant,
            budget: request.prompt.len() as u64 + u64::from(request.max_new_tokens.0),
            failure: None,
            running: false,
            untold: false,
            text: AnswerText::new(tokenizer.clone(), &request.stop, request.stop_text, request.special_tokens),
            prompt: request.sampling.prompt_logprobs.then(|| PromptLogprobs::new(request.prompt.len())),
            pending: None,
            generated: Tokens::ZERO,
            arrived,
            submitted,
            admitted: None,
            first_token: None,
            last_token: submitted,
            progress: request.observed.progress.clone(),
        }
    }

    /// It gets a row, and so many of its tokens are computed already; only the first time counts. Says whether it was.
    pub(crate) fn admit(&mut self, computed: Tokens, now: Micros) -> bool {
        let first = self.admitted.is_none();
        self.admitted.get_or_insert((now, computed));
        first
    }

    /// Log-probabilities of a chunk whose first token has this position.
    pub(crate) fn add_prompt_logprobs(&mut self, start: Tokens, logprobs: &[f32]) {
        if let Some(prompt) = &mut self.prompt {
            prompt.add(start.0 as usize, logprobs);
        }
    }

    /// The next token.
    pub(crate) fn push(&mut self, token: TokenId, sampled: Option<&SampledToken>, now: Micros) -> Growth {
        let growth = self.text.push(token);
        self.generated += Tokens(1);
        let wait = match self.first_token {
            None => Wait::First(now.saturating_sub(self.arrived)),
            Some(_) => Wait::Next(now.saturating_sub(self.last_token)),
        };
        self.first_token.get_or_insert(now);
        self.last_token = now;
        if let Some(progress) = &self.progress {
            progress.token(Instant::now());
        }
        self.pending = Some(GeneratedToken {
            id: token,
            text: growth.text,
            logprob: sampled.and_then(|sampled| sampled.logprob),
            special: growth.special,
            top: sampled.map_or_else(Vec::new, |sampled| self.top_tokens(&sampled.top)),
        });
        Growth { stopped: growth.stopped, wait }
    }

    /// Wakes the reader for all that was delivered.
    pub(crate) fn tell_reader(&mut self) {
        self.untold = false;
        self.deliverer.wake();
    }

    /// Delivers the newest token without waking the reader: the answer goes on.
    pub(crate) fn flush(&mut self) -> Result<(), Full> {
        self.flush_prompt()?;
        self.pending.take().map_or(Ok(()), |token| self.deliverer.send(Update::Token(token)))
    }

    /// Delivers the newest token and the end.
    pub(crate) fn finish(mut self, reason: FinishReason) {
        if reason != FinishReason::StopString {
            let rest = self.text.finish();
            if let Some(token) = &mut self.pending {
                token.text.push_str(&rest);
            }
        }
        if let Err(Full { unread }) = self.flush_prompt() {
            return self.deliverer.fail(GenerationError::SlowReader { unread });
        }
        let (timings, generated) = (self.timings(), self.generated);
        let cached = self.admitted.map_or(Tokens::ZERO, |(_, cached)| cached);
        let finished = Finished { reason, text: self.text.into_text(), generated, cached, timings };
        self.deliverer.finish(self.pending, finished);
    }

    /// Ends without an answer. A token that was not delivered yet is lost with it.
    pub(crate) fn fail(self, error: GenerationError) {
        self.deliverer.fail(error);
    }

    /// Once, before the first token.
    fn flush_prompt(&mut self) -> Result<(), Full> {
        match self.prompt.take_if(|_| self.generated > Tokens::ZERO) {
            Some(prompt) => self.deliverer.send(Update::Prompt(prompt.complete())),
            None => Ok(()),
        }
    }

    fn top_tokens(&self, top: &[(TokenId, f32)]) -> Vec<TopToken> {
        let show = |&(id, logprob): &(TokenId, f32)| TopToken {
            id,
            text: self.tokenizer.token_text(id),
            logprob,
            special: self.tokenizer.is_special(id),
        };
        top.iter().map(show).collect()
    }

    fn timings(&self) -> Timings {
        let between = |from: Micros, to: Micros| Duration::from_micros(to.saturating_sub(from).0);
        let admitted = self.admitted.map_or(self.last_token, |(moment, _)| moment);
        Timings {
            queue: between(self.submitted, admitted),
            inference: between(admitted, self.last_token),
            first_token: between(self.submitted, self.first_token.unwrap_or(self.last_token)),
        }
    }
}

/// Gathers what comes chunk by chunk, and after a preemption once more.
struct PromptLogprobs {
    gathered: Vec<f32>,
    length: usize,
}

impl PromptLogprobs {
    fn new(length: usize) -> Self {
        Self { gathered: Vec::with_capacity(length), length }
    }

    /// Takes what is new of a chunk that starts at position `start`; tokens beyond the prompt are the answer's.
    fn add(&mut self, start: usize, logprobs: &[f32]) {
        let known = self.gathered.len().saturating_sub(start);
        let wanted = self.length.saturating_sub(start).min(logprobs.len());
        if start <= self.gathered.len() && known < wanted {
            self.gathered.extend_from_slice(&logprobs[known..wanted]);
        }
    }

    /// As many as the prompt has tokens; NaN where the shard gave none.
    fn complete(mut self) -> Vec<f32> {
        self.gathered.resize(self.length, f32::NAN);
        self.gathered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_gathered_and_repeats_and_answer_tokens_left_out() {
        let mut prompt = PromptLogprobs::new(5);
        prompt.add(0, &[0.0, -1.0]);
        prompt.add(0, &[9.0, 9.0, -2.0]); // preempted: the first two again
        prompt.add(0, &[9.0]); // again, in smaller chunks
        prompt.add(4, &[9.0]); // a gap is no place for what follows it
        prompt.add(3, &[-3.0, -4.0, 9.0, 9.0]); // the chunk goes on into the answer
        assert_eq!(prompt.complete(), [0.0, -1.0, -2.0, -3.0, -4.0]);
    }

    #[test]
    fn a_position_the_shard_left_out_is_nan() {
        let mut prompt = PromptLogprobs::new(2);
        prompt.add(0, &[-1.0]);
        let complete = prompt.complete();
        assert!(complete.len() == 2 && complete[0] == -1.0 && complete[1].is_nan());
    }
}
