//! A pretend shard that plays strictly by the plans, stories told with it, and properties over random histories.

mod admission;
mod failure;
mod life;
mod overlap;
mod packing;
mod preemption;
mod properties;
mod shard;
mod world;
