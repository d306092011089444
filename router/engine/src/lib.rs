//! The async driver: owns one scheduler and one logical shard.

mod generation;

pub use generation::{
    FinishReason, Finished, GeneratedToken, GenerationError, GenerationRequest, StopText, Timings, TopToken, Update,
};
