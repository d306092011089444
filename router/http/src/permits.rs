//! How many generations may be under way together, those that are still being read and tokenized included.
//!
//! The scheduler counts what it holds; this count comes first, so that a server that is full says so before it reads a
//! text. Under policy `fair` a full scheduler makes place for a tenant below its equal share, so such a tenant must get
//! that far: it is let through beyond the limit, up to a few times the limit, which bounds memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::state::Limits;

/// How far tenants below their share may go beyond the limit, in limits.
const FAIR_LIMITS: u32 = 4;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Permits(Arc<Mutex<Taken>>);

/// Gives its places back when dropped.
pub(crate) struct Permit {
    permits: Permits,
    tenant: Box<str>,
    count: u32,
}

struct Taken {
    limit: u32,
    fair: bool,
    all: u32,
    /// Only under `fair`; nobody with none.
    tenants: HashMap<Box<str>, u32>,
}

impl Permits {
    pub fn new(limits: &Limits) -> Self {
        let Limits { max_concurrent_requests: limit, fair_tenants: fair, .. } = *limits;
        Self(Arc::new(Mutex::new(Taken { limit, fair, all: 0, tenants: HashMap::new() })))
    }

    /// Places that may be taken at the most.
    pub fn most(limits: &Limits) -> u32 {
        let limits_in_all = if limits.fair_tenants { FAIR_LIMITS } else { 1 };
        limits.max_concurrent_requests.saturating_mul(limits_in_all)
    }

    /// Takes `count` places for a tenant; `None`: there are not so many.
    pub fn take(&self, tenant: &str, count: u32) -> Option<Permit> {
        let mut taken = self.lock();
        if !taken.has_room(tenant, count) {
            return None;
        }
        taken.all += count;
        if taken.fair {
            *taken.tenants.entry(tenant.into()).or_default() += count;
        }
        Some(Permit { permits: self.clone(), tenant: tenant.into(), count })
    }

    /// Every change is made whole, so poison means nothing here.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn has_room(&self, tenant: &str, count: u32) -> bool {
        let all = u64::from(self.all) + u64::from(count);
        if all <= u64::from(self.limit) {
            return true;
        }
        if !self.fair || all > u64::from(self.limit) * u64::from(FAIR_LIMITS) {
            return false;
        }
        let own = u64::from(self.tenants.get(tenant).copied().unwrap_or(0)) + u64::from(count);
        let tenants = self.tenants.len() as u64 + u64::from(!self.tenants.contains_key(tenant));
        own * tenants <= u64::from(self.all)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.permits.lock();
        taken.all -= self.count;
        if let Some(own) = taken.tenants.get_mut(&self.tenant) {
            *own -= self.count;
            if *own == 0 {
                taken.tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(limit: u32, fair_tenants: bool) -> Permits {
        Permits::new(&Limits { max_concurrent_requests: limit, fair_tenants, ..Limits::default() })
    }

    fn flood(permits: &Permits, tenant: &str) -> Vec<Permit> {
        std::iter::from_fn(|| permits.take(tenant, 1)).collect()
    }

    #[test]
    fn the_limit_is_the_limit_and_places_come_back() {
        let permits = permits(3, false);
        let taken = flood(&permits, "a");
        assert_eq!(taken.len(), 3);
        assert!(permits.take("b", 1).is_none());
        drop(taken);
        assert!(permits.take("b", 4).is_none());
        assert!(permits.take("b", 3).is_some());
    }

    #[test]
    fn under_fair_one_tenant_fills_the_limit_and_others_still_get_their_shares() {
        let permits = permits(12, true);
        let a = flood(&permits, "a");
        let b = flood(&permits, "b");
        // Its share counts the place it would take: 11 of 23, and then 11 of 34.
        assert_eq!((a.len(), b.len()), (12, 11));
        let c = flood(&permits, "c");
        assert_eq!(c.len(), 11);
        assert!(permits.take("a", 1).is_none(), "it has more than its share");
    }

    #[test]
    fn under_fair_all_tenants_together_stay_within_a_few_limits() {
        let permits = permits(2, true);
        let all: Vec<Permit> = (0..100).flat_map(|n| flood(&permits, &n.to_string())).collect();
        assert!(all.len() <= 8, "{}", all.len());
    }

    #[test]
    fn tenants_without_requests_are_forgotten() {
        let permits = permits(2, true);
        (0..10).for_each(|n| drop(permits.take(&n.to_string(), 1)));
        assert!(permits.lock().tenants.is_empty());
    }
}
