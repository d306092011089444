//! The two baselines: batches that are put together once and run to their end.
//!
//! `static` starts a group of whoever waits, up to its size, when the last group has wholly ended: the rows of those
//! that end early idle. `dynamic` (request-level batching) collects first: its batch starts when the window since the
//! first arrival is over, or when it is full. Both serve for real, so that what iteration-level scheduling brings can be
//! measured and not only claimed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::Turn;
use crate::queue::Waiting;
use crate::sequences::Handle;
use crate::units::Micros;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Batches {
    /// With arrivals.
    line: BTreeMap<Turn, Micros>,
    size: u32,
    window: Micros,
    /// Requests of the batch under way that have not entered yet: prompts may take several steps to be let in.
    places: usize,
}

impl Batches {
    pub fn of_size(size: u32) -> Self {
        Self::within(Micros::ZERO, size)
    }

    pub fn within(window: Micros, size: u32) -> Self {
        Self { line: BTreeMap::new(), size: size.max(1), window, places: 0 }
    }

    pub fn push(&mut self, handle: Handle, waiting: &Waiting) {
        self.line.insert(Turn::of(handle, waiting), waiting.arrived);
        if waiting.preempted {
            // It belongs to the batch under way.
            self.places += 1;
        }
    }

    pub fn remove(&mut self, handle: Handle, waiting: &Waiting) {
        self.line.remove(&Turn::of(handle, waiting));
    }

    pub fn order(&self, _now: Micros, limit: usize, out: &mut Vec<Handle>) {
        out.extend(self.line.keys().take(limit).map(|turn| turn.handle));
    }

    /// A plan is made; with nobody running it may start the next batch.
    pub fn begin_plan(&mut self, now: Micros, running: usize) {
        if running == 0 {
            let due = self.opens_at().is_some_and(|moment| moment <= now);
            self.places = if due { self.line.len().min(self.size as usize) } else { 0 };
        }
    }

    pub fn admitted(&mut self) {
        self.places = self.places.saturating_sub(1);
    }

    pub fn lets_in(&self) -> bool {
        self.places > 0
    }

    /// When the batch that is being collected starts, if nothing runs then.
    pub fn opens_at(&self) -> Option<Micros> {
        let (_, &first) = self.line.first_key_value()?;
        let full = self.line.len() >= self.size as usize;
        Some(if full { Micros::ZERO } else { first + self.window })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::{handles, waiting};

    fn arrive(batches: &mut Batches, handle: Handle, at: u64) {
        batches.push(handle, &Waiting { arrived: Micros(at), ..waiting() });
    }

    #[test]
    fn a_group_starts_with_whoever_waits_when_nobody_runs() {
        let mut batches = Batches::of_size(3);
        handles(5).into_iter().for_each(|handle| arrive(&mut batches, handle, 0));
        batches.begin_plan(Micros(0), 2);
        assert!(!batches.lets_in());
        batches.begin_plan(Micros(0), 0);
        for _ in 0..3 {
            assert!(batches.lets_in());
            batches.admitted();
        }
        assert!(!batches.lets_in());
    }

    #[test]
    fn a_group_goes_on_entering_in_later_plans() {
        let mut batches = Batches::of_size(2);
        handles(2).into_iter().for_each(|handle| arrive(&mut batches, handle, 0));
        batches.begin_plan(Micros(0), 0);
        batches.admitted();
        batches.begin_plan(Micros(1), 1);
        assert!(batches.lets_in());
    }

    #[test]
    fn a_window_collects_until_it_is_over_or_full() {
        let mut batches = Batches::within(Micros(1000), 2);
        let handles = handles(2);
        arrive(&mut batches, handles[0], 50);
        batches.begin_plan(Micros(1049), 0);
        assert!(!batches.lets_in());
        assert_eq!(batches.opens_at(), Some(Micros(1050)));
        batches.begin_plan(Micros(1050), 0);
        assert!(batches.lets_in());
        let mut full = Batches::within(Micros(1000), 2);
        handles.into_iter().for_each(|handle| arrive(&mut full, handle, 50));
        full.begin_plan(Micros(60), 0);
        assert!(full.lets_in());
    }
}
