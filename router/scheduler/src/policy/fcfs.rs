//! First come, first served.

use std::collections::BTreeMap;

use crate::sequences::Handle;
use crate::units::Tokens;

/// Waiting requests by arrival. Nobody overtakes the head, so a preempted request arrived before all that never ran:
/// it goes back to the front by itself, and several of them keep their order.
#[derive(Default)]
pub(crate) struct Fcfs {
    /// Tokens each must compute before its next one.
    waiting: BTreeMap<Handle, Tokens>,
    tokens: u64,
}

impl Fcfs {
    pub fn push(&mut self, handle: Handle, tokens: Tokens) {
        self.waiting.insert(handle, tokens);
        self.tokens += u64::from(tokens.0);
    }

    pub fn head(&self) -> Option<Handle> {
        self.waiting.first_key_value().map(|(&handle, _)| handle)
    }

    pub fn remove(&mut self, handle: Handle) {
        if let Some(tokens) = self.waiting.remove(&handle) {
            self.tokens -= u64::from(tokens.0);
        }
    }

    /// A sample that was in flight when the request was preempted has landed.
    pub fn grow(&mut self, handle: Handle) {
        if let Some(tokens) = self.waiting.get_mut(&handle) {
            *tokens += Tokens(1);
            self.tokens += 1;
        }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Tokens of all waiting requests together.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}
