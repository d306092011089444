//! Traces: every input of a scheduler and every plan that came of it, so that a run can be replayed byte for byte.
//!
//! A trace holds no text and no token ids: a request is its length and one number per full block of tokens, equal
//! exactly when all ids of two blocks are; sampled tokens are only counted, with ends of sequences marked. That is all
//! a scheduler's decisions depend on.
//!
//! A trace is a row of *segments*. Each begins with the configuration and a snapshot of the scheduler, so every one can
//! be replayed alone, and old ones can be thrown away. Numbers of blocks mean something within their segment only.
//!
//! [`TracedScheduler`] is a scheduler that writes a trace when it is told to; [`replay`] runs a segment again.

mod names;
mod record;
mod recorder;
mod replay;
mod traced;

pub use record::{Arrival, Ended, Outcome, PlanRecord, Record, SegmentError, records};
pub use replay::{Difference, ReplayError, Replayed, config, first_request, replay};
pub use traced::TracedScheduler;

#[cfg(test)]
pub(crate) use record::write;
