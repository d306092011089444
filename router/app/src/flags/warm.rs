//! Flags of `headrace warm`.

use clap::Args;

use super::serve::{ComputeFlags, ModelFlags};

#[derive(Debug, Args)]
pub struct WarmFlags {
    #[command(flatten)]
    pub model: ModelFlags,
    /// Chips to compile for, separated by commas; none need be there. sm_80: A100, sm_86: A10, sm_89: L4, sm_90: H100 and
    /// H200, sm_100: B200, sm_120: RTX Blackwell.
    #[arg(
        long,
        env = "WARM_TARGET",
        value_name = "CHIP",
        value_delimiter = ',',
        default_value = "sm_90",
        help_heading = "Chip"
    )]
    pub target: Vec<String>,
    /// Processes that the model is split over; each has kernels of its sizes.
    #[arg(
        long,
        visible_alias = "tensor-parallel-size",
        env,
        value_name = "SHARDS",
        default_value_t = 1,
        help_heading = "Shard"
    )]
    pub num_shard: u32,
    #[command(flatten)]
    pub compute: ComputeFlags,
}
