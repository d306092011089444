//! The shard as Rust sees it: gRPC client, N ranks as one logical worker, an in-process fake.

mod error;
mod facts;
mod result;
mod sampling;

pub use error::ShardError;
pub use facts::{PoolReport, ShardFacts, WarmupLimits};
pub use result::{SampledToken, StepResult, StepTiming};
pub use sampling::Sampling;
