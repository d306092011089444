//! Decides what runs next: a pure state machine of requests, rows and KV blocks.
//!
//! No async, no clock, no I/O, no randomness, no floats, no hash order: commands go in, plans and events come out, and
//! the same commands always give the same bytes. So the code that serves traffic is the code that a simulator replays
//! and that property tests torment.
//!
//! # In reading order
//!
//! 1. [`Tokens`], [`Blocks`], [`RequestId`], [`Row`], [`Epoch`], …: units and names as types.
//! 2. [`Config`]: the knobs. [`Request`]: what a caller asks. [`Rejected`]: why not.
//! 3. [`StepPlan`]: one forward pass, with [`Admission`]s, [`Chunk`]s of prompts and [`Decode`] rows;
//!    [`StepOutcome`]: what came of it.
//! 4. [`Event`]: what happened to a request. [`Stats`]: how things stand.
//! 5. [`Scheduler`]: all of it in motion.
//! 6. [`trace`]: every decision again, byte for byte.
//!
//! # The life of a request
//!
//! ```text
//! submit ─▶ waiting ─▶ prefilling ─▶ decoding ─▶ finished
//!              ▲            │            │
//!              └─ preempted ┴────────────┘   its tokens so far are its new prompt: none is streamed twice, none lost
//! ```
//!
//! The batch is decided anew before every step. Decode rows come first, one token each; prompts share the rest in
//! chunks. KV blocks are taken as a sequence grows. When they run out, a request that came late gives its blocks back
//! and is computed again later. Two steps may be in flight, so a plan counts tokens that the shard has sampled and this
//! side does not know yet.
//!
//! ```
//! use headrace_scheduler::*;
//!
//! let mut scheduler = Scheduler::new(Config {
//!     block_size: Tokens(16),
//!     total_blocks: Blocks(64),
//!     max_batch_size: 8,
//!     max_batch_prefill_tokens: Tokens(512),
//!     max_total_tokens: Tokens(1024),
//!     eos: vec![0],
//!     ..Config::default()
//! });
//! let now = Micros(0);
//! let id = scheduler.submit(Request::new(vec![11, 12, 13], Tokens(2)), now)?;
//!
//! // The whole prompt is one chunk, so its row samples in the first step…
//! let first = scheduler.plan_step(now).expect("a request waits");
//! assert_eq!((first.chunks[0].tokens, first.chunks[0].samples), (Tokens(3), true));
//! // …and the second step may be sent before that sample is known.
//! let second = scheduler.plan_step(now).expect("the row decodes");
//! assert_eq!(second.decodes[0].position, Tokens(3));
//!
//! for (step, token) in [(first.step, 70), (second.step, 71)] {
//!     let outcome = StepOutcome::Done { samples: vec![Sample::Token(token)], failed: vec![], took: Micros(900) };
//!     scheduler.complete_step(step, outcome, now);
//! }
//! let events: Vec<Event> = std::iter::from_fn(|| scheduler.poll_event()).collect();
//! assert_eq!(events[0], Event::Token { request: id, token: 70, index: 0, sample: 0 });
//! assert_eq!(events[1], Event::Token { request: id, token: 71, index: 1, sample: 0 });
//! let reason = FinishReason::Length;
//! assert_eq!(events[2], Event::Finished { request: id, reason, generated: Tokens(2) });
//! assert_eq!(scheduler.stats().blocks.free, Blocks(64));
//! # Ok::<(), Rejected>(())
//! ```

mod admission;
mod chunk_order;
mod completion;
mod config;
mod deferral;
mod demand;
mod event;
mod forecast;
mod fork;
mod gate;
mod host_pool;
mod in_flight;
mod kv_cache;
mod least_squares;
mod lengths;
mod overload;
mod pace;
mod packing;
mod plan;
mod policy;
mod pool;
mod preemption;
mod prefix_tree;
mod queue;
mod request;
mod rows;
mod scheduler;
mod sequence;
mod sequences;
mod stats;
mod step_limit;
mod step_time;
mod survival;
mod swap;
pub mod trace;
mod units;

pub use config::{AdmissionRule, Config, PolicyKind};
pub use event::{Event, FinishReason};
pub use least_squares::{TERMS, solve_non_negative};
pub use plan::{Admission, BlockCopy, Chunk, Decode, Entrance, Sample, StepOutcome, StepPlan, SwapIn, SwapOut};
/// Public for its benchmark only.
#[doc(hidden)]
pub use prefix_tree::PrefixTree;
pub use request::{CacheRoot, Overload, OverloadCause, Priority, Rejected, Request, Tenant};
pub use scheduler::Scheduler;
pub use stats::{BlockStats, FinishCounts, PrefixStats, Stats};
pub use step_time::{ENOUGH_STEPS, StepCost, StepShape, StepTimes};
pub use units::{BlockId, Blocks, Epoch, HostBlock, Micros, RequestId, Row, StepId, TokenId, Tokens};

#[cfg(test)]
mod tests;
