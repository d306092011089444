//! Who asks for what, and when.

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
        }
    }
}
