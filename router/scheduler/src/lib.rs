//! Decides what runs next: a pure state machine of requests, rows and KV blocks.

mod config;
mod event;
mod plan;
mod request;
mod units;

pub use config::Config;
pub use event::{Event, FinishReason};
pub use plan::{Admission, Chunk, Decode, Sample, StepOutcome, StepPlan};
pub use request::{Rejected, Request};
pub use units::{BlockId, Blocks, Epoch, Micros, RequestId, Row, StepId, TokenId, Tokens};
