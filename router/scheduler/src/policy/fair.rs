//! Each tenant its share: the virtual token counter.
//!
//! Every tenant has a counter of the work done for it: a prompt token that is computed counts 1, a generated token 2;
//! what is computed again after a preemption is not charged twice, and cached tokens are free. The tenant with the
//! lowest counter is next, its own requests by arrival. A tenant that comes back is lifted to the lowest counter of those
//! that are active: idle time is not saved up.
//!
//! A tenant that holds less than an equal share of the rows does not wait for a flood of another to ebb: when rows or
//! blocks are out, the newest row of the tenant most above its share is given up, one a step. When the queue is full,
//! a tenant below its equal share takes the place of the newest waiting request of the most loaded one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::{Line, Runner, Turn};
use crate::queue::Waiting;
use crate::request::Tenant;
use crate::sequences::Handle;
use crate::units::Micros;

/// A generated token costs a pass over all weights for one row; a prompt token shares it.
const GENERATED_WEIGHT: u64 = 2;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Fair {
    /// Tenants with requests that run or wait, and nobody else.
    active: BTreeMap<Tenant, Account>,
    /// The lowest counter when the last tenant left: where the next one starts.
    floor: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Account {
    counter: u64,
    line: Line,
    running: u32,
}

impl Account {
    fn live(&self) -> usize {
        self.line.len() + self.running as usize
    }
}

impl Fair {
    pub fn push(&mut self, handle: Handle, waiting: &Waiting) {
        self.account(waiting.tenant).line.insert(Turn::of(handle, waiting));
    }

    pub fn remove(&mut self, handle: Handle, waiting: &Waiting) {
        if let Some(account) = self.active.get_mut(&waiting.tenant) {
            account.line.remove(&Turn::of(handle, waiting));
        }
        self.close(waiting.tenant);
    }

    /// The next of each tenant, lowest counter first (of equals, who has fewer rows: one that just came back is not made
    /// to wait for a step of the others); then the second of each, and so on.
    pub fn order(&self, _now: Micros, limit: usize, out: &mut Vec<Handle>) {
        let mut tenants: Vec<_> = self.active.iter().filter(|(_, account)| !account.line.is_empty()).collect();
        tenants.sort_by_key(|(tenant, account)| (account.counter, account.running, **tenant));
        let mut lines: Vec<_> = tenants.iter().map(|(_, account)| account.line.iter()).collect();
        let end = out.len() + limit;
        while !lines.is_empty() && out.len() < end {
            lines.retain_mut(|line| {
                let next = line.next();
                out.extend(next.map(|turn| turn.handle));
                next.is_some()
            });
        }
        out.truncate(end);
    }

    pub fn charge(&mut self, tenant: Tenant, prompt: u64, generated: u64) {
        if let Some(account) = self.active.get_mut(&tenant) {
            account.counter += prompt + GENERATED_WEIGHT * generated;
        }
    }

    pub fn seated(&mut self, tenant: Tenant, sits: bool) {
        let account = self.account(tenant);
        account.running = if sits { account.running + 1 } else { account.running.saturating_sub(1) };
        self.close(tenant);
    }

    pub fn displaces(&self, waiting: &Waiting, running: &[Runner]) -> Option<Handle> {
        let share = |running: u32| u64::from(running) * self.active.len() as u64;
        let rows = running.len() as u64;
        let own = self.active.get(&waiting.tenant)?;
        if share(own.running + 1) > rows {
            return None;
        }
        let above = self.active.iter().filter(|(_, account)| share(account.running) > rows);
        let (&most, _) = above.max_by_key(|(tenant, account)| (account.running, Reverse(**tenant)))?;
        running.iter().rfind(|runner| runner.tenant == most && !runner.spared).map(|runner| runner.handle)
    }

    /// With one request more, the tenant would still have no more than an equal share of all.
    pub fn is_below_share(&self, tenant: Tenant) -> bool {
        let all: usize = self.active.values().map(Account::live).sum();
        let tenants = self.active.len() + usize::from(!self.active.contains_key(&tenant));
        (self.live(tenant) + 1) * tenants <= all
    }

    pub fn makes_place_for(&self, tenant: Tenant) -> Option<Handle> {
        if !self.is_below_share(tenant) {
            return None;
        }
        let waits =
            |account: &Account| account.line.iter().rev().find(|turn| !turn.was_preempted()).map(|turn| turn.handle);
        let others = self.active.iter().filter(|(other, account)| **other != tenant && waits(account).is_some());
        let (_, most) = others.max_by_key(|(other, account)| (account.live(), Reverse(**other)))?;
        if most.live() <= self.live(tenant) + 1 { None } else { waits(most) }
    }

    fn live(&self, tenant: Tenant) -> usize {
        self.active.get(&tenant).map_or(0, Account::live)
    }

    fn account(&mut self, tenant: Tenant) -> &mut Account {
        let lowest = self.active.values().map(|account| account.counter).min().unwrap_or(self.floor);
        self.active.entry(tenant).or_insert_with(|| Account { counter: lowest, ..Account::default() })
    }

    /// Forgets a tenant that has nothing here any more.
    fn close(&mut self, tenant: Tenant) {
        if self.active.get(&tenant).is_some_and(|account| account.live() == 0)
            && let Some(account) = self.active.remove(&tenant)
        {
            self.floor = self.floor.max(account.counter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::{handles, waiting};

    fn fair(tenants: &[u32]) -> (Fair, Vec<Handle>) {
        let handles = handles(tenants.len());
        let mut fair = Fair::default();
        for (&handle, &tenant) in handles.iter().zip(tenants) {
            fair.push(handle, &of(tenant));
        }
        (fair, handles)
    }

    fn of(tenant: u32) -> Waiting {
        Waiting { tenant: Tenant(tenant), ..waiting() }
    }

    fn order(fair: &Fair) -> Vec<u64> {
        let mut out = Vec::new();
        fair.order(Micros(0), 16, &mut out);
        out.into_iter().map(|handle| handle.request.0).collect()
    }

    #[test]
    fn the_tenant_that_got_least_is_next() {
        let (mut fair, _) = fair(&[1, 1, 2, 2]);
        assert_eq!(order(&fair), [1, 3, 2, 4]);
        fair.charge(Tenant(1), 10, 0);
        assert_eq!(order(&fair), [3, 1, 4, 2]);
        fair.charge(Tenant(2), 0, 6);
        assert_eq!(order(&fair), [1, 3, 2, 4], "six generated tokens count twelve");
    }

    #[test]
    fn a_tenant_that_comes_back_has_saved_nothing_up() {
        let (mut fair, handles) = fair(&[1, 2]);
        fair.charge(Tenant(1), 1000, 0);
        fair.charge(Tenant(2), 400, 0);
        fair.remove(handles[1], &of(2));
        fair.charge(Tenant(1), 1000, 0);
        fair.push(handles[1], &of(2));
        assert_eq!(fair.active[&Tenant(2)].counter, 2000);
    }

    #[test]
    fn tenants_that_left_are_forgotten() {
        let (mut fair, handles) = fair(&[1, 2]);
        fair.seated(Tenant(1), true);
        fair.remove(handles[0], &of(1));
        assert_eq!(fair.active.len(), 2);
        fair.seated(Tenant(1), false);
        assert_eq!(fair.active.len(), 1);
    }

    #[test]
    fn a_tenant_below_its_share_takes_the_newest_row_of_the_one_most_above() {
        let (mut fair, _) = fair(&[1, 2]);
        (0..4).for_each(|_| fair.seated(Tenant(1), true));
        let runners: Vec<Runner> = handles(4)
            .into_iter()
            .map(|handle| Runner { handle, tenant: Tenant(1), priority: crate::Priority::NORMAL, spared: false })
            .collect();
        assert_eq!(fair.displaces(&of(2), &runners), Some(runners[3].handle));
        let spared: Vec<Runner> =
            runners.iter().map(|r| Runner { spared: r.handle == runners[3].handle, ..*r }).collect();
        assert_eq!(fair.displaces(&of(2), &spared), Some(runners[2].handle));
        assert_eq!(fair.displaces(&of(1), &runners), None, "nobody displaces its own");
    }

    #[test]
    fn with_equal_shares_nobody_is_displaced() {
        let (mut fair, _) = fair(&[1, 2]);
        for tenant in [1, 1, 2, 2] {
            fair.seated(Tenant(tenant), true);
        }
        let runner = |(handle, tenant): (Handle, u32)| Runner {
            handle,
            tenant: Tenant(tenant),
            priority: crate::Priority::NORMAL,
            spared: false,
        };
        let runners: Vec<Runner> = handles(4).into_iter().zip([1, 1, 2, 2]).map(runner).collect();
        assert_eq!(fair.displaces(&of(2), &runners), None);
    }

    #[test]
    fn in_a_full_queue_a_tenant_below_its_share_takes_the_place_of_the_newest_of_the_most_loaded() {
        let (fair, handles) = fair(&[1, 1, 1, 1]);
        assert_eq!(fair.makes_place_for(Tenant(2)), Some(handles[3]));
        assert_eq!(fair.makes_place_for(Tenant(1)), None);
    }

    #[test]
    fn a_tenant_with_its_share_is_refused_like_anybody() {
        let (fair, _) = fair(&[1, 1, 2, 2]);
        assert_eq!(fair.makes_place_for(Tenant(2)), None);
    }
}
