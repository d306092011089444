//! The async driver: owns one scheduler and one logical shard, and gives each caller a stream of updates.
//!
//! | file | idea |
//! |---|---|
//! | `generation.rs` | what a caller gives and gets |
//! | `engine.rs` | [`Engine`]: the handle that callers hold |
//! | `stream.rs` | [`Generation`]: the updates of one request; dropping it cancels |
//! | `mailbox.rs` | updates on their way to one reader |
//! | `departures.rs` | who left, never lost and never waiting for room |
//! | `driver.rs` | the one task that owns everything: commands, results, when to send |
//! | `intake.rs` | who comes and who leaves |
//! | `link.rs` | the session with the shard, and how it comes back |
//! | `landing.rs` | a step's result becomes tokens, updates and ends |
//! | `answer.rs`, `answer_text.rs` | one request's state: delivery and times; text and stop strings |
//! | `by_request.rs` | a map by request |
//! | `progress.rs` | how far a generation has come, for those who trace it |
//! | `pacing.rs` | when the next step goes out; pure |
//! | `trace.rs` | the scheduler's trace in files |
//! | `tenants.rs` | names of tenants become a bounded number of numbers; pure |
//! | `published.rs`, `telemetry.rs`, `load_metrics.rs`, `health.rs`, `vitals.rs` | what others may see while it runs |
//!
//! The scheduler decides; this crate waits and calls. Nothing here blocks the reactor: text is O(1) per token, tensors
//! are the shard's. Nothing grows without bound: commands wait in a bounded channel (so callers feel a slow engine), and
//! each stream's buffer is bounded (so a reader that is too slow is cancelled, and holds nobody else back).

mod answer;
mod answer_text;
mod by_request;
mod command;
mod config;
mod departures;
mod driver;
mod engine;
mod generation;
mod health;
mod intake;
mod landing;
mod link;
mod load_metrics;
mod mailbox;
mod pacing;
mod progress;
mod published;
mod stream;
mod telemetry;
mod tenants;
mod trace;
mod vitals;

pub use config::{EngineConfig, Recovery};
pub use driver::EngineStopped;
pub use engine::{Engine, EngineTask};
pub use generation::{
    FinishReason, Finished, GeneratedToken, GenerationError, GenerationRequest, Observed, StopText, Terms, Timings,
    TopToken, Update,
};
pub use progress::{Progress, Reached, ShardWork};
pub use published::{EngineSnapshot, EngineState, Totals};
pub use stream::Generation;
pub use tenants::DEFAULT as DEFAULT_TENANT;
pub use trace::TraceFiles;
