//! Who comes and who leaves: submissions, refusals, and readers that are gone.

use headrace_scheduler::{Rejected, Request, RequestId, Tenant, TokenId};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::command::{Command, Submission};
use crate::driver::Driver;
use crate::generation::{GenerationError, GenerationRequest};
use crate::stream::{Deliverer, Generation};

impl Driver {
    pub(crate) fn obey(&mut self, command: Command) {
        match command {
            Command::Generate(submission) => {
                let Submission { requests, submitted, reply } = *submission;
                // A refusal drops those that were taken before it, and their drop cancels them. So it is where the
                // caller left: they come back in the error.
                drop(reply.send(self.submit_all(requests, submitted)));
            }
            Command::Ping(reply) => drop(reply.send(())),
            Command::Close(reply) => drop(reply.send(self.close())),
        }
    }

    /// Choices of one question follow each other: each may start from what the first of them computed.
    fn submit_all(
        &mut self,
        requests: Vec<GenerationRequest>,
        submitted: Instant,
    ) -> Result<Vec<Generation>, GenerationError> {
        let mut taken: Vec<Generation> = Vec::with_capacity(requests.len());
        let mut first: Option<(RequestId, Vec<TokenId>)> = None;
        let several = requests.len() > 1;
        for request in requests {
            let same = first.as_ref().filter(|(_, prompt)| *prompt == request.prompt).map(|(id, _)| *id);
            let prompt = (several && same.is_none()).then(|| request.prompt.clone());
            let generation = self.submit(request, same, submitted)?;
            first = prompt.map(|prompt| (generation.request(), prompt)).or(first);
            taken.push(generation);
        }
        Ok(taken)
    }

    fn submit(
        &mut self,
        request: GenerationRequest,
        fork_of: Option<RequestId>,
        submitted: Instant,
    ) -> Result<Generation, GenerationError> {
        if !self.published.is_serving() {
            return Err(GenerationError::ShuttingDown);
        }
        let tenant = self.tenants.enter(request.terms.tenant.as_deref());
        let plain = Request {
            prompt: request.prompt.clone(),
            max_new_tokens: request.max_new_tokens,
            ignore_eos: request.ignore_eos,
            tenant,
            priority: request.terms.priority,
            deadline: request.terms.deadline.map(|deadline| self.moment(deadline)),
            root: request.terms.cache_root.clone(),
            // A cached beginning is not computed, so it has no log-probabilities.
            reads_cache: !request.sampling.prompt_logprobs,
            fork_of,
        };
        let id = self.scheduler.submit(plain, self.now()).map_err(|rejected| self.refused(tenant, rejected))?;
        let (deliverer, generation) = Deliverer::new(id, self.stream_buffer, self.departures.clone());
        let arrived = self.moment(request.observed.arrived.unwrap_or(submitted));
        let answer = Answer::new(&request, deliverer, &self.tokenizer, tenant, arrived, self.moment(submitted));
        if let Some(progress) = &answer.progress {
            progress.submitted(submitted);
            self.followed += 1;
        }
        self.totals.prompt_tokens += request.prompt.len() as u64;
        self.answers.insert(id, answer);
        self.published.set_idle(false);
        Ok(generation)
    }

    fn refused(&mut self, tenant: Tenant, rejected: Rejected) -> GenerationError {
        self.tenants.leave(tenant);
        if let Rejected::Overloaded(overload) = &rejected {
            self.telemetry.load.rejected(&overload.cause);
        }
        GenerationError::Rejected(rejected)
    }

    /// Cancels every request whose reader left; one that has ended meanwhile is not there any more.
    pub(crate) fn let_departed_go(&mut self) {
        let now = self.now();
        for (request, cause) in self.departures.take() {
            if self.remove(request).is_some() {
                self.scheduler.cancel(request, now);
                self.telemetry.cancelled(cause);
            }
        }
        self.deliver_events(&mut [], now);
    }
}
