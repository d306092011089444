//! Those that wait for a row: what is known of each, and the policy that puts them in order.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::demand::Demand;
use crate::policy::{Policy, Runner};
use crate::request::{Priority, Tenant};
use crate::sequences::Handle;
use crate::units::{Blocks, Micros, Tokens};

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// Tokens to compute before its next one, as far as the cache was known when it began to wait.
    pub uncached: Tokens,
    /// As expected when it was looked at last.
    pub demand: Demand,
    pub tenant: Tenant,
    pub priority: Priority,
    pub arrived: Micros,
    /// Had a row before.
    pub preempted: bool,
    /// Requests that overtook it while it waited for blocks.
    pub skips: u32,
    /// Waits for another to publish what both begin with.
    pub deferred: Option<Deferral>,
}

/// `first` computes, right now, a beginning that the waiting request would compute too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deferral {
    pub first: Handle,
    /// Until this many of its blocks are published.
    pub until: Blocks,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Queue {
    waiting: BTreeMap<Handle, Waiting>,
    pub policy: Policy,
    tokens: u64,
    demand: Demand,
    /// Whose demand was looked at last.
    looked_at: Option<Handle>,
}

impl Queue {
    pub fn new(config: &Config) -> Self {
        Self {
            waiting: BTreeMap::new(),
            policy: Policy::new(config),
            tokens: 0,
            demand: Demand::default(),
            looked_at: None,
        }
    }

    pub fn push(&mut self, handle: Handle, waiting: Waiting) {
        self.tokens += u64::from(waiting.uncached.0);
        self.demand += waiting.demand;
        self.policy.push(handle, &waiting);
        self.waiting.insert(handle, waiting);
    }

    /// It ended while it waited.
    pub fn remove(&mut self, handle: Handle) {
        if let Some(waiting) = self.waiting.remove(&handle) {
            self.forget(&waiting);
            self.policy.remove(handle, &waiting);
        }
    }

    /// It got a row, which somebody else gave for it if `displaced`; the flag says whether by its age alone.
    pub fn admit(&mut self, handle: Handle, displaced: bool) -> Option<(Waiting, bool)> {
        let waiting = self.waiting.remove(&handle)?;
        self.forget(&waiting);
        let by_age = self.policy.admitted(handle, &waiting, displaced);
        Some((waiting, by_age))
    }

    fn forget(&mut self, waiting: &Waiting) {
        self.tokens -= u64::from(waiting.uncached.0);
        self.demand -= waiting.demand;
    }

    /// A sample that was in flight when the request was preempted has landed.
    pub fn grow(&mut self, handle: Handle) {
        if let Some(waiting) = self.waiting.get_mut(&handle) {
            waiting.uncached += Tokens(1);
            self.tokens += 1;
        }
    }

    /// It must compute another number of tokens than was thought.
    pub fn recount(&mut self, handle: Handle, uncached: Tokens, demand: Demand) {
        let Some(mut waiting) = self.waiting.remove(&handle) else { return };
        self.forget(&waiting);
        (waiting.uncached, waiting.demand) = (uncached, demand);
        self.tokens += u64::from(uncached.0);
        self.demand += demand;
        self.waiting.insert(handle, waiting);
    }

    pub fn get(&self, handle: Handle) -> Option<&Waiting> {
        self.waiting.get(&handle)
    }

    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut Waiting> {
        self.waiting.get_mut(&handle)
    }

    /// Who is next, if anybody waits.
    pub fn head(&self, now: Micros) -> Option<Handle> {
        let mut head = Vec::with_capacity(1);
        self.policy.order(now, 1, &mut head);
        head.pop()
    }

    /// Who is first to take somebody's row when none is free.
    pub fn claimant(&self, now: Micros) -> Option<Handle> {
        self.policy.most_urgent().or_else(|| self.head(now))
    }

    /// Who gives a row to this waiting request.
    pub fn displaces(&self, handle: Handle, running: &[Runner]) -> Option<Handle> {
        self.policy.displaces(self.get(handle)?, running)
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whose demand is to be looked at again: one after the other, and then from the first on.
    pub fn next_to_look_at(&mut self) -> Option<Handle> {
        let after = (self.looked_at.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let next = self.waiting.range(after).next().or_else(|| self.waiting.first_key_value());
        self.looked_at = next.map(|(&handle, _)| handle);
        self.looked_at
    }

    pub fn expect(&mut self, handle: Handle, demand: Demand) {
        if let Some(waiting) = self.waiting.get_mut(&handle) {
            self.demand -= std::mem::replace(&mut waiting.demand, demand);
            self.demand += demand;
        }
    }

    /// Of all waiting requests together.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Tokens to compute of all waiting requests together.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Request;
    use crate::sequence::Sequence;
    use crate::sequences::Sequences;

    /// Handles of `count` requests, in order of arrival.
    pub fn handles(count: usize) -> Vec<Handle> {
        let mut sequences = Sequences::default();
        let sequence = || Sequence::new(Request::new(vec![1], Tokens(1)), Micros(0), None);
        (0..count).map(|_| sequences.insert(sequence())).collect()
    }

    /// An ordinary request that just came.
    pub fn waiting() -> Waiting {
        Waiting {
            uncached: Tokens(10),
            demand: Demand::default(),
            tenant: Tenant(0),
            priority: Priority::NORMAL,
            arrived: Micros(0),
            preempted: false,
            skips: 0,
            deferred: None,
        }
    }

    #[test]
    fn the_queues_tokens_are_those_of_all_who_wait() {
        let mut queue = Queue::new(&Config::default());
        let handles = handles(3);
        handles.iter().for_each(|&handle| queue.push(handle, waiting()));
        queue.grow(handles[0]);
        assert_eq!((queue.tokens(), queue.len()), (31, 3));
        queue.remove(handles[1]);
        assert!(queue.admit(handles[0], false).is_some());
        assert_eq!((queue.tokens(), queue.len(), queue.head(Micros(0))), (10, 1, Some(handles[2])));
    }
}
