//! A load generator for any server that speaks TGI's or OpenAI's streaming API over HTTP/1.1. It knows nothing of this
//! project's other crates, so that it measures all servers alike.
//!
//! In the order of a run:
//!
//! | file | idea |
//! |---|---|
//! | `target.rs` | [`Target`]: where, which API, and what a request's body is there |
//! | `workload.rs` | [`Workload`]: what request number n asks |
//! | `load.rs` | [`Load`]: when requests start: as many at once, or so many a second |
//! | `run.rs` | [`run`]: starts them, and gathers what came of them |
//! | `connection.rs` | one kept-alive connection |
//! | `events.rs` | a stream of bytes becomes events, without looking into them |
//! | `answer.rs` | events become times and a count of tokens, by looking into as few of them as possible |
//! | `tally.rs` | what is kept of answers |
//! | `usage.rs` | CPU time, of this process and of the server's |
//! | `report.rs` | [`Report`]: the figures, as JSON and as a table |
//!
//! A client that reads 100,000 tokens a second beside the server that it measures must be cheap: an event is found by
//! its line end and counted unseen. Only the first ones and the last two of an answer are parsed, because only there
//! may be events without a token.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails panics"))]

mod answer;
mod connection;
mod events;
mod load;
mod report;
mod run;
mod tally;
mod target;
mod usage;
mod workload;

pub use answer::AskError;
pub use load::{Arrivals, Load};
pub use report::{Percentiles, Report};
pub use run::{Bench, run};
pub use target::{Api, Target, TargetError};
pub use usage::Cpu;
pub use workload::{Prompt, Workload};
