//! A load generator for any server that speaks TGI's or OpenAI's streaming API over HTTP/1.1. It knows nothing of this
//! project's other crates, so that it measures all servers alike.
//!
//! In the order of a run:
//!
//! | file | idea |
//! |---|---|
//! | `target.rs` | [`Target`]: where, which API, and what a request's body is there |
//! | `workload/` | [`Workload`]: what requests ask: lengths, made-up prompts, files |
//! | `load.rs` | [`Load`]: when requests start: as many at once, so many a second, or at given times |
//! | `health.rs` | waits until the server is ready |
//! | `run.rs` | [`run`]: starts them, and gathers what came of them |
//! | `connection.rs` | one kept-alive connection |
//! | `events.rs` | a stream of bytes becomes events, without looking into them |
//! | `answer.rs` | events become times and a count of tokens, by looking into as few of them as possible |
//! | `progress.rs` | [`Progress`]: how far it is |
//! | `goodput.rs` | [`Limits`]: which answers are good |
//! | `timeline.rs` | requests and tokens over time |
//! | `tally.rs` | what is kept of answers |
//! | `usage.rs` | CPU time, of this process and of the server's |
//! | `report.rs`, `table.rs` | [`Report`]: the figures, as JSON and as a table |
//! | `sweep.rs` | [`Sweep`]: runs at growing loads, and their knee |
//! | `outcome.rs` | [`Outcome`]: a run or a sweep |
//! | `html/` | [`html::page`]: all of it as pictures |
//!
//! A client that reads 100,000 tokens a second beside the server that it measures must be cheap: an event is found by
//! its line end and counted unseen. Only the first ones and the last two of an answer are parsed, because only there
//! may be events without a token.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails panics"))]

mod answer;
mod connection;
mod events;
mod goodput;
mod health;
pub mod html;
mod load;
mod outcome;
mod progress;
mod report;
mod run;
mod sweep;
mod table;
mod tally;
mod target;
mod timeline;
mod usage;
mod workload;

pub use answer::AskError;
pub use goodput::{Goodput, Limits};
pub use load::{Arrivals, Gaps, Load};
pub use outcome::{Origin, Outcome};
pub use progress::{Counts, Progress};
pub use report::{CpuFigures, Curves, Percentiles, Report};
pub use run::{Bench, RunError, run};
pub use sweep::{Axis, Point, Sweep};
pub use target::{Api, Target, TargetError};
pub use timeline::Moment;
pub use usage::Cpu;
pub use workload::{Asks, FileError, Lengths, LineProblem, Listed, Shape, Words, WordsError, Workload};
