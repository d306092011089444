//! The shard as Rust sees it: gRPC client, N ranks as one logical worker, an in-process fake.
//!
//! # Reading order
//!
//! | file | idea |
//! |---|---|
//! | `proto/shard.proto` | the contract; its header comment is the law this crate obeys |
//! | `logical.rs` | [`LogicalShard`]: what is asked outside of steps: facts, warm-up, health, a new session |
//! | `session.rs` | [`Session`]: plans in, results out, strictly in order |
//! | `facts.rs`, `sampling.rs`, `result.rs`, `error.rs` | the values that cross this crate's border |
//! | `address.rs`, `order.rs` | where a rank listens, and whether the addresses are those of all ranks in their order |
//! | `connector.rs`, `gather.rs`, `deadlines.rs` | how a rank is reached, and all of them; how long anything may take |
//! | `rank.rs`, `streams.rs`, `codec.rs` | one rank: its calls, its three streams, and whether its answers keep the order |
//! | `remote.rs`, `hang.rs` | a session of N ranks: one message to all, complete when all have answered; who holds it up |
//! | `expected.rs` | what a step's answer must hold, bound when the step is sent |
//! | `wire/` | plans to bytes, answers to results, packed arrays; pure |
//! | `fake/` | a shard in this process that plays the protocol strictly, for tests and `--fake-shard` |
//!
//! # Example
//!
//! ```
//! # use headrace_scheduler::*;
//! # use headrace_shard::*;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let fake = FakeShard::new();
//! let answer = fake.expected_tokens(&[1, 2, 3], 1);
//! let shard = LogicalShard::fake(fake);
//!
//! let limits = WarmupLimits {
//!     max_batch_size: 8,
//!     max_batch_prefill_tokens: Tokens(512),
//!     max_total_tokens: None,
//!     blocks: None,
//!     host_bytes: 0,
//! };
//! shard.warmup(&limits).await?;
//! let mut session = shard.open_session().await?;
//!
//! let (request, row) = (RequestId(1), Row(0));
//! let plan = StepPlan {
//!     admitted: vec![Admission {
//!         request,
//!         row,
//!         epoch: Epoch(1),
//!         tokens: vec![1, 2, 3],
//!         generated: Tokens(0),
//!         computed: Tokens(0),
//!     }],
//!     chunks: vec![Chunk { request, row, start: Tokens(0), tokens: Tokens(3), samples: true, blocks: 0..1 }],
//!     blocks: vec![BlockId(0)],
//!     ..StepPlan::new(StepId(1))
//! };
//! session.send_step(&plan, &[Sampling::greedy()])?;
//! assert_eq!(session.next_result().await?.samples[0].token, answer[0]);
//! # Ok::<(), ShardError>(())
//! # }).unwrap();
//! ```

mod address;
mod codec;
mod connector;
mod deadlines;
mod error;
mod expected;
mod facts;
mod fake;
mod gather;
mod hang;
mod logical;
mod order;
mod rank;
mod remote;
mod result;
mod sampling;
mod session;
mod streams;
mod wire;

/// The wire's types as generated from `proto/shard.proto`: for shards written in Rust, such as those of our tests.
#[allow(missing_docs, clippy::all, clippy::unwrap_used)]
pub mod proto {
    tonic::include_proto!("headrace.shard.v1");
}

pub use address::{AddressError, ShardAddress};
pub use deadlines::Deadlines;
pub use error::ShardError;
pub use facts::{PoolReport, ShardFacts, WarmupLimits};
pub use fake::{CostModel, EosRule, FakeHandle, FakeShard, TokenRule};
pub use logical::LogicalShard;
pub use result::{SampledToken, StepError, StepResult, StepTiming};
pub use sampling::Sampling;
pub use session::{MAX_FILTERS_IN_FLIGHT, MAX_STEPS_IN_FLIGHT, Session};
pub use wire::MAX_MESSAGE_BYTES;
