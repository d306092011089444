//! Who asks for what, and when.

use std::collections::BTreeMap;

use headrace_scheduler::{Micros, Priority, Tokens};

/// Requests in the order of their arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    arrivals: Vec<Arrival>,
}

/// One request. Its prompt's token ids are its own, but for a prefix that others name too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub at: Micros,
    /// At least one.
    pub prompt: Tokens,
    /// Length of the answer that the pretended model gives; at least one.
    pub output: Tokens,
    /// What the client allows; no less than `output`.
    pub max_new: Tokens,
    pub tenant: String,
    pub priority: Priority,
    /// From the arrival.
    pub deadline: Option<Micros>,
    pub prefix: Option<Prefix>,
    /// Instead of a prefix: which of its blocks equal others'.
    pub blocks: Option<NamedBlocks>,
    /// So long after the arrival the client is gone, and the request is cancelled if it has not ended.
    pub leaves: Option<Micros>,
}

/// Contents of a request's blocks as a trace tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedBlocks {
    /// Tokens of a block when the numbers were given.
    pub size: Tokens,
    /// By place in prompt and answer. Blocks of equal numbers have equal tokens; all others are the request's own.
    pub numbers: BTreeMap<u32, u64>,
    /// Only requests with the same root share anything.
    pub root: u32,
    /// May start from what others computed.
    pub reads_cache: bool,
}

/// The prompt begins like that of every other request which names the same prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub name: String,
    /// No more than the prompt has.
    pub tokens: Tokens,
}

impl Workload {
    /// Sorts by arrival; requests of the same moment keep their order.
    pub fn new(mut arrivals: Vec<Arrival>) -> Self {
        arrivals.sort_by_key(|arrival| arrival.at);
        Self { arrivals }
    }

    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }
}

impl Arrival {
    /// An ordinary request of tenant `default` that allows as many tokens as its answer has.
    pub fn new(at: Micros, prompt: Tokens, output: Tokens) -> Self {
        Self {
            at,
            prompt,
            output,
            max_new: output,
            tenant: "default".to_owned(),
            priority: Priority::NORMAL,
            deadline: None,
            prefix: None,
            blocks: None,
            leaves: None,
        }
    }
}
