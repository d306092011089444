//! Bands of priority, −100 … 100: the more urgent first, and nobody for ever last.
//!
//! Two things keep a band from starving. It ages: every [`AGE`] of waiting counts as one band, so after 20 s the lowest
//! stands level with a newcomer of the highest. And one admission in [`SHARE`] goes to whoever waits longest, whatever
//! its band, so that a share is guaranteed in work too, not only in time; who entered so is not thrown out for a more
//! urgent one before it has got on by [`SPARED_FOR`](crate::preemption::SPARED_FOR) tokens. The batch class, −100, does not age: it fills what the others leave, and has that share.
//!
//! Within a band: first come, first served. A newcomer that finds no row, or no blocks, takes the place of a running
//! request of a lower band: the lowest, and of these the one that came last. Ages do not count for that: a request that
//! runs because it waited long is not thrown out for having waited, and one that waits for a row to become free because
//! it is its turn holds up nobody who takes another's. It keeps its turn.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::{Line, Runner, Turn};
use crate::queue::Waiting;
use crate::request::Priority;
use crate::sequences::Handle;
use crate::units::Micros;

/// Waiting this long counts as one band.
pub(crate) const AGE: Micros = Micros(100_000);
/// One admission in so many goes to the longest waiting.
pub(crate) const SHARE: u32 = 16;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PriorityBands {
    bands: BTreeMap<Priority, Line>,
    /// Arrival of everybody that waits, to age by.
    arrived: BTreeMap<Handle, (Micros, Priority)>,
    /// Admissions since the last one by age alone.
    admissions: u32,
}

impl PriorityBands {
    pub fn push(&mut self, handle: Handle, waiting: &Waiting) {
        self.bands.entry(waiting.priority).or_default().insert(Turn::of(handle, waiting));
        self.arrived.insert(handle, (waiting.arrived, waiting.priority));
    }

    pub fn remove(&mut self, handle: Handle, waiting: &Waiting) {
        self.arrived.remove(&handle);
        if let Some(line) = self.bands.get_mut(&waiting.priority) {
            line.remove(&Turn::of(handle, waiting));
            if line.is_empty() {
                self.bands.remove(&waiting.priority);
            }
        }
    }

    pub fn order(&self, now: Micros, limit: usize, out: &mut Vec<Handle>) {
        let first = out.len();
        if self.is_turn_of_the_oldest() {
            // Handles are in order of arrival.
            out.extend(self.arrived.first_key_value().map(|(&handle, _)| handle));
        }
        let oldest = out.get(first).copied();
        let mut lines: Vec<_> = self.bands.iter().map(|(band, line)| (*band, line.iter().peekable())).collect();
        while out.len() - first < limit {
            let heads = lines.iter_mut().enumerate().filter_map(|(place, (band, line))| {
                let handle = line.peek()?.handle;
                let waited =
                    self.arrived.get(&handle).map_or(Micros::ZERO, |(arrived, _)| now.saturating_sub(*arrived));
                let ages = *band != Priority::BATCH;
                let age = if ages { i64::try_from(waited.0 / AGE.0).unwrap_or(i64::MAX / 2) } else { 0 };
                Some((i64::from(band.band()).saturating_add(age), *band, place))
            });
            let Some((_, _, place)) = heads.max() else { break };
            let handle = lines[place].1.next().map(|turn| turn.handle);
            out.extend(handle.filter(|handle| Some(*handle) != oldest));
        }
    }

    /// The next of the highest band.
    pub fn most_urgent(&self) -> Option<Handle> {
        let (_, line) = self.bands.last_key_value()?;
        line.first().map(|turn| turn.handle)
    }

    /// Says whether the request entered by its age alone. One that `displaced` somebody leaves the oldest its turn.
    pub fn admitted(&mut self, handle: Handle, displaced: bool) -> bool {
        let turn = self.is_turn_of_the_oldest();
        let by_age = turn && self.arrived.first_key_value().is_some_and(|(&oldest, _)| oldest == handle);
        if !turn || by_age || !displaced {
            self.admissions = (self.admissions + 1) % SHARE;
        }
        by_age
    }

    fn is_turn_of_the_oldest(&self) -> bool {
        self.admissions + 1 >= SHARE
    }

    pub fn displaces(&self, waiting: &Waiting, running: &[Runner]) -> Option<Handle> {
        let lower = running.iter().filter(|runner| runner.priority < waiting.priority && !runner.spared);
        lower.min_by_key(|runner| (runner.priority, std::cmp::Reverse(runner.handle))).map(|runner| runner.handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::{handles, waiting};

    fn bands(requests: &[(i64, u64)]) -> (PriorityBands, Vec<Handle>) {
        let handles = handles(requests.len());
        let mut bands = PriorityBands::default();
        for (&handle, &(band, arrived)) in handles.iter().zip(requests) {
            let priority = Priority::new(band).expect("a band");
            bands.push(handle, &Waiting { priority, arrived: Micros(arrived), ..waiting() });
        }
        (bands, handles)
    }

    fn order(bands: &PriorityBands, now: u64) -> Vec<u64> {
        let mut out = Vec::new();
        bands.order(Micros(now), 16, &mut out);
        out.into_iter().map(|handle| handle.request.0).collect()
    }

    #[test]
    fn the_more_urgent_goes_first_and_equals_by_arrival() {
        let (bands, _) = bands(&[(0, 0), (5, 0), (-100, 0), (5, 0)]);
        assert_eq!(order(&bands, 0), [2, 4, 1, 3]);
    }

    #[test]
    fn waiting_counts_like_a_band_every_tenth_of_a_second() {
        let (bands, _) = bands(&[(-99, 0), (100, 19_800_000), (100, 20_000_000), (-100, 0)]);
        assert_eq!(order(&bands, 19_800_000), [2, 3, 1, 4]);
        assert_eq!(order(&bands, 20_000_000), [2, 1, 3, 4], "20 s make up for 199 bands, but not for the batch class");
    }

    #[test]
    fn one_admission_in_sixteen_goes_to_whoever_waits_longest() {
        let (mut bands, handles) = bands(&[(-100, 0), (100, 0)]);
        for _ in 0..SHARE - 1 {
            assert_eq!(order(&bands, 0), [2, 1]);
            assert!(!bands.admitted(handles[1], false));
        }
        assert_eq!(order(&bands, 0), [1, 2]);
        assert!(bands.admitted(handles[0], false));
        assert_eq!(order(&bands, 0), [2, 1]);
    }

    #[test]
    fn who_takes_anothers_row_is_the_most_urgent_whatever_the_ages_and_leaves_the_oldest_its_turn() {
        let (mut bands, handles) = bands(&[(-1, 0), (0, 20_000_000)]);
        assert_eq!(order(&bands, 20_000_000), [1, 2]);
        assert_eq!(bands.most_urgent(), Some(handles[1]));
        for _ in 0..2 * SHARE {
            assert!(!bands.admitted(handles[1], true));
        }
        assert_eq!(order(&bands, 0), [1, 2], "its turn came with the fifteenth, and has not gone");
        assert!(bands.admitted(handles[0], false));
    }

    #[test]
    fn a_newcomer_displaces_the_last_of_the_lowest_band_below_its_own() {
        let handles = handles(4);
        let runner = |place: usize, band: i64, spared: bool| Runner {
            handle: handles[place],
            tenant: crate::Tenant(0),
            priority: Priority::new(band).expect("a band"),
            spared,
        };
        let newcomer = Waiting { priority: Priority::NORMAL, ..waiting() };
        let bands = PriorityBands::default();
        let victim = |running: &[Runner]| bands.displaces(&newcomer, running);
        assert_eq!(victim(&[runner(0, -100, false), runner(1, -100, false), runner(2, -5, false)]), Some(handles[1]));
        assert_eq!(victim(&[runner(0, -100, true), runner(1, -5, false)]), Some(handles[1]));
        assert_eq!(victim(&[runner(0, 0, false), runner(1, 7, false)]), None);
    }
}
