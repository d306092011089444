//! Names of tenants become numbers, and there are never more than a fixed number of them.
//!
//! The scheduler keeps an account per tenant, so their number must not be for clients to decide. A name has its number
//! while it has requests, and after that until another name needs it: a tenant that comes back finds what was learned of
//! its answers. When every number is in use, further names share one, [`OTHER`].

use std::collections::{BTreeSet, HashMap};

use headrace_scheduler::Tenant;

/// Requests without a name.
pub const DEFAULT: &str = "default";
/// Tenants beyond the last number.
pub const OTHER: &str = "other";
/// Names that may have a number of their own at a time.
const MAX_NAMES: usize = 1024;

const DEFAULT_NUMBER: Tenant = Tenant(0);
const OTHER_NUMBER: Tenant = Tenant(1);
/// Numbers below are not given to names.
const RESERVED: u32 = 2;

#[derive(Default)]
pub(crate) struct Tenants {
    numbers: HashMap<Box<str>, Tenant>,
    /// By number, from `RESERVED` on.
    seats: Vec<Seat>,
    /// Seats without requests, with the moment they emptied, oldest first.
    idle: BTreeSet<(u64, Tenant)>,
    /// Grows when a seat empties.
    clock: u64,
}

struct Seat {
    name: Box<str>,
    /// Requests that wait or run.
    live: u32,
    emptied: u64,
}

impl Tenants {
    /// A request of this tenant comes; each is followed by one [`leave`](Self::leave).
    pub(crate) fn enter(&mut self, name: Option<&str>) -> Tenant {
        let tenant = match name {
            None | Some(DEFAULT) => return DEFAULT_NUMBER,
            Some(OTHER) => return OTHER_NUMBER,
            Some(name) => self.number(name),
        };
        if let Some(seat) = self.seat(tenant) {
            seat.live += 1;
            let emptied = seat.emptied;
            self.idle.remove(&(emptied, tenant));
        }
        tenant
    }

    /// A request of this tenant has ended.
    pub(crate) fn leave(&mut self, tenant: Tenant) {
        let now = self.clock + 1;
        let Some(seat) = self.seat(tenant) else { return };
        seat.live = seat.live.saturating_sub(1);
        if seat.live == 0 {
            seat.emptied = now;
            self.clock = now;
            self.idle.insert((now, tenant));
        }
    }

    fn number(&mut self, name: &str) -> Tenant {
        if let Some(&tenant) = self.numbers.get(name) {
            return tenant;
        }
        let seat = Seat { name: name.into(), live: 0, emptied: 0 };
        let tenant = if self.seats.len() < MAX_NAMES {
            self.seats.push(seat);
            Tenant(RESERVED + self.seats.len() as u32 - 1)
        } else {
            let Some((_, tenant)) = self.idle.pop_first() else { return OTHER_NUMBER };
            if let Some(old) = self.seat(tenant).map(|old| std::mem::replace(old, seat)) {
                self.numbers.remove(&old.name);
            }
            tenant
        };
        self.numbers.insert(name.into(), tenant);
        tenant
    }

    fn seat(&mut self, tenant: Tenant) -> Option<&mut Seat> {
        self.seats.get_mut(tenant.0.checked_sub(RESERVED)? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many tenants as have numbers, each with one request.
    fn full() -> (Tenants, Vec<Tenant>) {
        let mut tenants = Tenants::default();
        let numbers = (0..MAX_NAMES).map(|i| tenants.enter(Some(&format!("tenant-{i}")))).collect();
        (tenants, numbers)
    }

    #[test]
    fn each_name_has_a_number_of_its_own_and_keeps_it() {
        let (mut tenants, numbers) = full();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), MAX_NAMES);
        assert_eq!(tenants.enter(Some("tenant-7")), numbers[7]);
        assert!(!numbers.contains(&DEFAULT_NUMBER) && !numbers.contains(&OTHER_NUMBER));
    }

    #[test]
    fn requests_without_a_name_are_the_default_tenants() {
        let mut tenants = Tenants::default();
        assert_eq!(tenants.enter(None), DEFAULT_NUMBER);
        assert_eq!(tenants.enter(Some("default")), DEFAULT_NUMBER);
        tenants.leave(DEFAULT_NUMBER);
        assert_eq!(tenants.enter(Some("a")), Tenant(RESERVED));
    }

    #[test]
    fn names_beyond_the_last_number_share_one() {
        let (mut tenants, numbers) = full();
        assert_eq!(tenants.enter(Some("late")), OTHER_NUMBER);
        assert_eq!(tenants.enter(Some("later")), OTHER_NUMBER);
        tenants.leave(OTHER_NUMBER);
        assert_eq!(tenants.enter(Some("tenant-0")), numbers[0]);
    }

    #[test]
    fn a_tenant_without_requests_gives_its_number_to_the_next_name_longest_idle_first() {
        let (mut tenants, numbers) = full();
        tenants.leave(numbers[5]);
        tenants.leave(numbers[3]);
        assert_eq!(tenants.enter(Some("late")), numbers[5]);
        assert_eq!(tenants.enter(Some("tenant-5")), numbers[3], "its number is gone, so it gets the next one");
        assert_eq!(tenants.enter(Some("tenant-3")), OTHER_NUMBER);
    }

    #[test]
    fn a_tenant_that_comes_back_before_its_number_is_needed_has_it_again() {
        let (mut tenants, numbers) = full();
        tenants.leave(numbers[5]);
        assert_eq!(tenants.enter(Some("tenant-5")), numbers[5]);
        assert_eq!(tenants.enter(Some("late")), OTHER_NUMBER, "nobody is idle");
    }

    #[test]
    fn a_number_stays_while_one_of_its_requests_does() {
        let (mut tenants, numbers) = full();
        tenants.enter(Some("tenant-5"));
        tenants.leave(numbers[5]);
        assert_eq!(tenants.enter(Some("late")), OTHER_NUMBER);
    }

    #[test]
    fn names_never_grow_beyond_the_numbers() {
        let mut tenants = Tenants::default();
        for i in 0..10 * MAX_NAMES {
            let tenant = tenants.enter(Some(&format!("tenant-{i}")));
            tenants.leave(tenant);
        }
        assert_eq!((tenants.numbers.len(), tenants.seats.len(), tenants.idle.len()), (MAX_NAMES, MAX_NAMES, MAX_NAMES));
    }
}
