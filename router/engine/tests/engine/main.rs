//! The engine over a fake shard, in paused time: no test waits for a clock.

mod answers;
mod failures;
mod leaving;
mod order;
mod terms;
mod trace;
mod vitals;
mod world;
