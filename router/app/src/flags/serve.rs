//! Flags of `headrace serve`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{BatchingFlags, ForeignFlags, HttpFlags, LimitFlags, ProcessFlags, SchedulingFlags, TelemetryFlags};

#[derive(Debug, Args)]
pub struct ServeFlags {
    #[command(flatten)]
    pub model: ModelFlags,
    #[command(flatten)]
    pub shard: ShardFlags,
    #[command(flatten)]
    pub limits: LimitFlags,
    #[command(flatten)]
    pub batching: BatchingFlags,
    #[command(flatten)]
    pub scheduling: SchedulingFlags,
    #[command(flatten)]
    pub http: HttpFlags,
    #[command(flatten)]
    pub telemetry: TelemetryFlags,
    #[command(flatten)]
    pub process: ProcessFlags,
    #[command(flatten)]
    pub foreign: ForeignFlags,
}

/// Which model, and where its files are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelFlags {
    /// A hub id, a directory (config.json, tokenizer.json, *.safetensors), a .gguf file, or `embedded`: the
    /// SmolLM2-135M-Instruct that is installed with the shard.
    #[arg(long, env, value_name = "MODEL", default_value = "embedded")]
    pub model_id: String,
    /// Commit or branch of a hub id. Default: its main branch.
    #[arg(long, env)]
    pub revision: Option<String>,
    /// Where converted models are kept (HEADRACE_CACHE). Default: ~/.cache/headrace.
    #[arg(long, env = "HEADRACE_CACHE", value_name = "DIRECTORY")]
    pub cache_dir: Option<PathBuf>,
    /// Where hub files are kept. Default: the hub client's own place.
    #[arg(long, env, value_name = "DIRECTORY")]
    pub huggingface_hub_cache: Option<PathBuf>,
}

/// How the model is computed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shard")]
pub struct ShardFlags {
    /// Shards that hold the model together. This version runs one.
    #[arg(long, env, value_name = "SHARDS")]
    pub num_shard: Option<u32>,
    /// `true` asks for more than one shard.
    #[arg(long, env, value_name = "BOOL", hide_short_help = true)]
    pub sharded: Option<bool>,
    /// Type of weights and KV cache. Default: bfloat16 on a GPU and on a CPU with AVX512-BF16 or AMX, else float32.
    #[arg(long, env, value_enum, value_name = "TYPE")]
    pub dtype: Option<Dtype>,
    /// Where to compute; `auto` takes a GPU when there is one.
    #[arg(long, env, value_enum, default_value = "auto")]
    pub device: Device,
    /// Tokens of one KV block. Small ones waste less at the end of a sequence, large ones make shorter tables. Default:
    /// the attention backend's choice.
    #[arg(long, env, value_name = "TOKENS")]
    pub block_size: Option<u32>,
    /// CPU threads of the shard. Default: all cores.
    #[arg(long, env, value_name = "THREADS")]
    pub num_threads: Option<u32>,
    /// Python interpreter that has headrace_server. Default: the one beside this binary, else the checkout's
    /// .venv/bin/python, else python3 on PATH.
    #[arg(long, env = "HEADRACE_PYTHON", value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Prefix of the shard's Unix socket; the rank is added (`PREFIX-0`). Default: a fresh private directory.
    #[arg(long, env, value_name = "PREFIX")]
    pub shard_uds_path: Option<PathBuf>,
}

/// Types a model can be computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    #[value(name = "float32")]
    Float32,
    #[value(name = "bfloat16")]
    Bfloat16,
    #[value(name = "float16")]
    Float16,
}

impl Dtype {
    /// The shard's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
        }
    }
}

/// Where a shard computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Device {
    Auto,
    Cpu,
    Cuda,
}

impl Device {
    /// The shard's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}
