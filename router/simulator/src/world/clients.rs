//! Who comes and who goes.

use headrace_scheduler::{CacheRoot, Rejected, Request, TokenId};

use super::World;
use crate::pretend_shard::Answer;
use crate::run::{Ending, Outcome};
use crate::workload::Arrival;

impl World<'_> {
    pub(super) fn submit_arrived(&mut self) {
        while let Some(arrival) = self.workload.arrivals().get(self.outcomes.len()).filter(|next| next.at <= self.now) {
            let (prompt, tokens) = self.ids.of(arrival);
            let request = self.request(arrival, prompt);
            let submitted = self.scheduler.submit(request, self.now);
            let refusal = submitted.as_ref().err();
            let ending = refusal.map(|_| (Ending::Rejected, self.now));
            let retry_after = refusal.and_then(|refusal| match refusal {
                Rejected::Overloaded(overload) => Some(overload.retry_after),
                _ => None,
            });
            if let Ok(id) = submitted {
                self.numbers.insert(id, self.outcomes.len());
                self.shard.expect(id, Answer { prompt: arrival.prompt, length: arrival.output, tokens });
                self.departures.extend(arrival.leaves.map(|after| (arrival.at + after, id)));
                self.settled = false;
            }
            self.outcomes.push(Outcome {
                tenant: arrival.tenant.clone(),
                priority: arrival.priority,
                arrived: arrival.at,
                planned: None,
                tokens: Vec::new(),
                ending,
                retry_after,
            });
        }
    }

    fn request(&self, arrival: &Arrival, prompt: Vec<TokenId>) -> Request {
        let root = arrival
            .blocks
            .as_ref()
            .map_or_else(CacheRoot::default, |blocks| CacheRoot { adapter: Some(blocks.root), ..CacheRoot::default() });
        Request {
            tenant: self.tenants[arrival.tenant.as_str()],
            priority: arrival.priority,
            deadline: arrival.deadline.map(|deadline| arrival.at + deadline),
            root,
            reads_cache: arrival.blocks.as_ref().is_none_or(|blocks| blocks.reads_cache),
            ..Request::new(prompt, arrival.max_new)
        }
    }

    pub(super) fn cancel_departed(&mut self) {
        while let Some(&(moment, request)) = self.departures.first().filter(|(moment, _)| *moment <= self.now) {
            self.departures.remove(&(moment, request));
            self.scheduler.cancel(request, self.now);
            self.settled = false;
        }
    }
}
