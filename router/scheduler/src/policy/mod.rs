//! Who is next among those that wait: one file per order, one small interface.
//!
//! The queue ([`crate::queue`]) knows who waits and for how much; a policy only puts them in order. Whoever was preempted
//! stands before those of its class that never ran: what it computed is dear, and may still be cached.

mod batches;
mod fair;
mod fcfs;
mod priority;
mod shortest;

use std::collections::BTreeSet;

pub(crate) use batches::Batches;
pub(crate) use fair::Fair;
pub(crate) use fcfs::Fcfs;
pub(crate) use priority::PriorityBands;
pub(crate) use shortest::Shortest;

use serde::{Deserialize, Serialize};

use crate::config::{Config, PolicyKind};
use crate::queue::Waiting;
use crate::request::{Priority, Tenant};
use crate::sequences::Handle;
use crate::units::Micros;

/// An order. All but `charge` and `begin_plan` are about waiting requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Policy {
    Fcfs(Fcfs),
    Priority(PriorityBands),
    Fair(Fair),
    Shortest(Shortest),
    Batches(Batches),
}

/// A place in a queue: those that were preempted first, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Turn {
    never_ran: bool,
    pub handle: Handle,
}

/// Requests of one class in the order of their turns.
pub(crate) type Line = BTreeSet<Turn>;

impl Turn {
    pub fn of(handle: Handle, waiting: &Waiting) -> Self {
        Self { never_ran: !waiting.preempted, handle }
    }

    pub fn was_preempted(&self) -> bool {
        !self.never_ran
    }
}

/// A running request as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner {
    pub handle: Handle,
    pub tenant: Tenant,
    pub priority: Priority,
    /// It must get on before its row is taken: see [`spared_for`](crate::preemption::spared_for).
    pub spared: bool,
}

macro_rules! each {
    ($policy:expr, $p:ident => $body:expr) => {
        match $policy {
            Policy::Fcfs($p) => $body,
            Policy::Priority($p) => $body,
            Policy::Fair($p) => $body,
            Policy::Shortest($p) => $body,
            Policy::Batches($p) => $body,
        }
    };
}

impl Policy {
    pub fn new(config: &Config) -> Self {
        match config.policy {
            PolicyKind::Fcfs => Self::Fcfs(Fcfs::default()),
            PolicyKind::Priority => Self::Priority(PriorityBands::default()),
            PolicyKind::Fair => Self::Fair(Fair::default()),
            PolicyKind::Shortest => Self::Shortest(Shortest::default()),
            PolicyKind::Static { group_size } => Self::Batches(Batches::of_size(group_size)),
            PolicyKind::Dynamic { window } => Self::Batches(Batches::within(window, config.max_batch_size)),
        }
    }

    pub fn push(&mut self, handle: Handle, waiting: &Waiting) {
        each!(self, policy => policy.push(handle, waiting));
    }

    pub fn remove(&mut self, handle: Handle, waiting: &Waiting) {
        each!(self, policy => policy.remove(handle, waiting));
    }

    /// Appends up to `limit` of those that wait, who is next first.
    pub fn order(&self, now: Micros, limit: usize, out: &mut Vec<Handle>) {
        each!(self, policy => policy.order(now, limit, out));
    }

    /// Who is first to take a row from those that run; `None`: whoever is next.
    pub fn most_urgent(&self) -> Option<Handle> {
        match self {
            Self::Priority(bands) => bands.most_urgent(),
            _ => None,
        }
    }

    /// The request left the queue for a row, which was taken from somebody for it if `displaced`. Says whether it entered
    /// by its age alone: it is spared for a while then.
    pub fn admitted(&mut self, handle: Handle, waiting: &Waiting, displaced: bool) -> bool {
        let by_age = match self {
            Self::Priority(bands) => bands.admitted(handle, displaced),
            Self::Batches(batches) => {
                batches.admitted();
                false
            }
            Self::Shortest(_) | Self::Fcfs(_) | Self::Fair(_) => false,
        };
        self.remove(handle, waiting);
        by_age
    }

    /// Tokens were planned for a tenant's request: of a prompt for the first time, and of an answer.
    pub fn charge(&mut self, tenant: Tenant, prompt: u64, generated: u64) {
        match self {
            Self::Fair(fair) => fair.charge(tenant, prompt, generated),
            Self::Shortest(shortest) => shortest.worked(prompt),
            Self::Fcfs(_) | Self::Priority(_) | Self::Batches(_) => {}
        }
    }

    /// A running request of the tenant began or ended; its share of the rows is counted by it.
    pub fn seated(&mut self, tenant: Tenant, sits: bool) {
        if let Self::Fair(fair) = self {
            fair.seated(tenant, sits);
        }
    }

    /// A plan begins, with so many running.
    pub fn begin_plan(&mut self, now: Micros, running: usize) {
        if let Self::Batches(batches) = self {
            batches.begin_plan(now, running);
        }
    }

    /// May anybody enter? Baselines let requests in only together.
    pub fn lets_in(&self) -> bool {
        match self {
            Self::Batches(batches) => batches.lets_in(),
            _ => true,
        }
    }

    /// When the next batch starts if nothing runs; `None`: the policy waits for nothing but rows and blocks.
    pub fn opens_at(&self) -> Option<Micros> {
        match self {
            Self::Batches(batches) => batches.opens_at(),
            _ => None,
        }
    }

    /// Who gives a row to the waiting request, when rows or blocks are out; `None`: it waits. `running` in order of
    /// arrival. At most one a step is asked for.
    pub fn displaces(&self, waiting: &Waiting, running: &[Runner]) -> Option<Handle> {
        match self {
            Self::Priority(bands) => bands.displaces(waiting, running),
            Self::Fair(fair) => fair.displaces(waiting, running),
            Self::Fcfs(_) | Self::Shortest(_) | Self::Batches(_) => None,
        }
    }

    /// A full queue is no reason to refuse this tenant: it has less than others.
    pub fn is_below_share(&self, tenant: Tenant) -> bool {
        match self {
            Self::Fair(fair) => fair.is_below_share(tenant),
            _ => false,
        }
    }

    /// Who leaves a full queue for a newcomer of this tenant; `None`: the newcomer is refused.
    pub fn makes_place_for(&self, tenant: Tenant) -> Option<Handle> {
        match self {
            Self::Fair(fair) => fair.makes_place_for(tenant),
            _ => None,
        }
    }
}
