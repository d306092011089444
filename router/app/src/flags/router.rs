//! Flags of `headrace router`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;
use headrace_shard::ShardAddress;

use super::{
    BatchingFlags, ForeignFlags, HttpFlags, LimitFlags, MemoryFlags, OppositeFlags, ProcessFlags, SchedulingFlags,
    TelemetryFlags,
};

#[derive(Debug, Args)]
pub struct RouterFlags {
    #[command(flatten)]
    pub model: RouterModelFlags,
    #[command(flatten)]
    pub fake: FakeFlags,
    #[command(flatten)]
    pub limits: LimitFlags,
    #[command(flatten)]
    pub batching: BatchingFlags,
    #[command(flatten)]
    pub memory: MemoryFlags,
    #[command(flatten)]
    pub scheduling: SchedulingFlags,
    #[command(flatten)]
    pub opposite: OppositeFlags,
    #[command(flatten)]
    pub http: HttpFlags,
    #[command(flatten)]
    pub telemetry: TelemetryFlags,
    #[command(flatten)]
    pub process: ProcessFlags,
    #[command(flatten)]
    pub foreign: ForeignFlags,
}

/// Which model, and who computes it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model and shards")]
pub struct RouterModelFlags {
    /// The model's directory. Only its config.json and tokenizer.json are read. Text Generation Inference's variable
    /// TOKENIZER_NAME wins over MODEL_ID.
    #[arg(long, visible_alias = "tokenizer-name", env, value_name = "DIRECTORY")]
    pub model_id: PathBuf,
    /// Text Generation Inference's name for the state of a hub id; a directory has one.
    #[arg(long, env, value_name = "REVISION", hide_short_help = true)]
    pub revision: Option<String>,
    /// Addresses of the shards in rank order, separated by commas: `unix:PATH` or `HOST:PORT`.
    #[arg(long, env, value_name = "ADDRESS", value_delimiter = ',')]
    pub shards: Vec<ShardAddress>,
    /// Unix socket of the only shard: --shards unix:PATH. Called as text-generation-router, the default is
    /// text-generation-server-0 in the directory for temporary files.
    #[arg(long, env, value_name = "PATH")]
    pub master_shard_uds_path: Option<PathBuf>,
}

/// A shard inside this process that computes nothing: to try the router, and to measure it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Fake shard")]
pub struct FakeFlags {
    /// Answer with made-up tokens instead of a model's.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub fake_shard: bool,
    /// Microseconds that each step takes.
    #[arg(long, env, value_name = "MICROSECONDS", default_value_t = 0)]
    pub fake_step_us: u64,
    /// Microseconds that each token of the forward pass adds to its step; a decode row has one token.
    #[arg(long, env, value_name = "MICROSECONDS", default_value_t = 0)]
    pub fake_token_us: u64,
    /// Microseconds that each row adds to its step.
    #[arg(long, env, value_name = "MICROSECONDS", default_value_t = 0)]
    pub fake_row_us: u64,
    /// Tokens of one KV block.
    #[arg(long, env, value_name = "TOKENS", default_value_t = 32)]
    pub block_size: u32,
}
