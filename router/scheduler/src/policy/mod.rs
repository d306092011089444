//! Who is next among those that wait. One file per order; all offer the same five methods.
//!
//! First come, first served is the only one so far. Priorities, fairness and shortest-first belong beside it.

mod fcfs;

pub(crate) use fcfs::Fcfs;
