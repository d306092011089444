//! First come, first served.

use serde::{Deserialize, Serialize};

use crate::policy::{Line, Turn};
use crate::queue::Waiting;
use crate::sequences::Handle;
use crate::units::Micros;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Fcfs {
    line: Line,
}

impl Fcfs {
    pub fn push(&mut self, handle: Handle, waiting: &Waiting) {
        self.line.insert(Turn::of(handle, waiting));
    }

    pub fn remove(&mut self, handle: Handle, waiting: &Waiting) {
        self.line.remove(&Turn::of(handle, waiting));
    }

    pub fn order(&self, _now: Micros, limit: usize, out: &mut Vec<Handle>) {
        out.extend(self.line.iter().take(limit).map(|turn| turn.handle));
    }
}
