//! A pretend shard that plays strictly by the plans, stories told with it, and properties over random histories.

mod admission;
mod failure;
mod fork;
mod life;
mod order;
mod overlap;
mod overload;
mod packing;
mod preemption;
mod prefix;
mod properties;
mod shard;
mod soak;
mod trace;
mod waiting;
mod world;
