//! Every unfinished request, found by handle in constant time and by id for the caller's commands.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

use crate::sequence::Sequence;
use crate::units::RequestId;

/// Names a sequence. Stays harmless when the sequence has ended: its place may be used again, its id never is.
/// Handles sort by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Handle {
    pub request: RequestId,
    index: u32,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Sequences {
    entries: Vec<Option<(RequestId, Sequence)>>,
    /// Places of ended sequences.
    vacant: Vec<u32>,
    by_id: BTreeMap<RequestId, u32>,
    last_id: u64,
}

impl Sequences {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The id that the next `insert` gives.
    pub fn next_id(&self) -> RequestId {
        RequestId(self.last_id + 1)
    }

    pub fn insert(&mut self, sequence: Sequence) -> Handle {
        let request = self.next_id();
        self.last_id = request.0;
        let entry = Some((request, sequence));
        let index = match self.vacant.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.by_id.insert(request, index);
        Handle { request, index }
    }

    pub fn remove(&mut self, handle: Handle) -> Option<Sequence> {
        let index = self.by_id.remove(&handle.request)?;
        self.vacant.push(index);
        self.entries[index as usize].take().map(|(_, sequence)| sequence)
    }

    /// `None`: never submitted, or ended.
    pub fn find(&self, request: RequestId) -> Option<Handle> {
        self.by_id.get(&request).map(|&index| Handle { request, index })
    }

    pub fn get(&self, handle: Handle) -> Option<&Sequence> {
        match self.entries.get(handle.index as usize) {
            Some(Some((request, sequence))) if *request == handle.request => Some(sequence),
            _ => None,
        }
    }

    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut Sequence> {
        match self.entries.get_mut(handle.index as usize) {
            Some(Some((request, sequence))) if *request == handle.request => Some(sequence),
            _ => None,
        }
    }

    /// All handles, in order of arrival.
    pub fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.by_id.iter().map(|(&request, &index)| Handle { request, index })
    }
}

/// For handles of the queue and the running list, which drop a sequence before it is removed.
impl Index<Handle> for Sequences {
    type Output = Sequence;

    fn index(&self, handle: Handle) -> &Sequence {
        self.get(handle).expect("queue and running list hold unfinished requests only")
    }
}

impl IndexMut<Handle> for Sequences {
    fn index_mut(&mut self, handle: Handle) -> &mut Sequence {
        self.get_mut(handle).expect("queue and running list hold unfinished requests only")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Micros, Request, Tokens};

    fn sequence() -> Sequence {
        Sequence::new(Request::new(vec![1], Tokens(1)), Micros(0), None)
    }

    #[test]
    fn an_ended_sequences_handle_does_not_find_the_one_that_took_its_place() {
        let mut sequences = Sequences::default();
        let first = sequences.insert(sequence());
        sequences.remove(first);
        let second = sequences.insert(sequence());
        assert_eq!(first.index, second.index);
        assert!(sequences.get_mut(first).is_none());
        assert!(sequences.get_mut(second).is_some());
        assert_eq!(sequences.find(first.request), None);
    }
}
