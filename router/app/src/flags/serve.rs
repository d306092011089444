//! Flags of `headrace serve`.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};

use super::surface::Secret;
use super::{
    BatchingFlags, ForeignFlags, HttpFlags, LimitFlags, MemoryFlags, OppositeFlags, ProcessFlags, SchedulingFlags,
    TelemetryFlags,
};

#[derive(Debug, Args)]
pub struct ServeFlags {
    #[command(flatten)]
    pub model: ModelFlags,
    #[command(flatten)]
    pub shard: ShardFlags,
    #[command(flatten)]
    pub compute: ComputeFlags,
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

/// Which model, and where its files are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelFlags {
    /// Another way to write --model-id.
    #[arg(value_name = "MODEL")]
    pub model: Option<String>,
    /// A hub id, a directory (config.json, tokenizer.json, *.safetensors), a .gguf file, or `embedded`: the
    /// SmolLM2-135M-Instruct that is installed with the shard. SageMaker's variable HF_MODEL_ID is read too; with it,
    /// the port is 8080 unless something else says.
    #[arg(long, visible_alias = "model", env, value_name = "MODEL", default_value = "embedded")]
    pub model_id: String,
    /// Commit or branch of a hub id. Default: its main branch.
    #[arg(long, env, value_name = "REVISION")]
    pub revision: Option<String>,
    /// Where converted models are kept and, in its folder `kernels`, compiled GPU kernels (HEADRACE_CACHE). Default:
    /// ~/.cache/headrace, but for kernels what TRITON_CACHE_DIR says if that is set.
    #[arg(long, env = "HEADRACE_CACHE", value_name = "DIRECTORY")]
    pub cache_dir: Option<PathBuf>,
    /// Where hub files are kept. Default: the hub client's own place.
    #[arg(long, visible_alias = "download-dir", env, value_name = "DIRECTORY")]
    pub huggingface_hub_cache: Option<PathBuf>,
    /// Token of the hub account, for gated and private models. HUGGING_FACE_HUB_TOKEN and HF_API_TOKEN are read too. As
    /// a variable it stays out of the list of processes.
    #[arg(long, env, value_name = "TOKEN")]
    pub hf_token: Option<Secret>,
}

/// How the model is computed, and by which interpreter.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shard")]
pub struct ComputeFlags {
    /// Type of weights and KV cache; `auto` is bfloat16 on a GPU and on a CPU with AVX512-BF16 or AMX, else float32.
    #[arg(long, env, value_enum, value_name = "TYPE", default_value = "auto")]
    pub dtype: Dtype,
    /// Keep the weights of linear layers in fewer bits, which are read faster, and answer a little less exactly. On a
    /// CPU: `int8` in 8.5 bits each, `int4` in 4.5 to 5; a GGUF's blocks of as many bits are used as they are. On a GPU:
    /// `int8` and `fp8` in 8. `gptq`, `awq`, `compressed-tensors` and also `fp8` are what a checkpoint is already; its
    /// config.json says so too. Default: as the checkpoint is; plain weights have the type of --dtype.
    #[arg(long, env, value_enum, value_name = "METHOD")]
    pub quantize: Option<Quantize>,
    /// Type of cached keys and values; `auto` is that of --dtype. 8 bits take about half of the memory of bfloat16, so the
    /// pool holds twice as many tokens and long contexts are read faster, for a little less exactness: `int8` on a CPU,
    /// `fp8_e4m3fn` and `fp8_e5m2` on a GPU. A CPU that is asked for one of the latter takes int8.
    #[arg(long, env, value_enum, value_name = "TYPE", default_value = "auto")]
    pub kv_cache_dtype: KvCacheDtype,
    /// Who computes attention; `auto` takes the fastest that is installed: on a GPU `fa3`, else `flashinfer`, else
    /// `triton`, on a CPU the C++ kernels. One that is named and can't compute here ends the start.
    #[arg(long, env, value_enum, value_name = "BACKEND", default_value = "auto")]
    pub attention_backend: AttentionBackend,
    /// A request's answer does not change with who else is served: sums are taken in one order, whatever the number of
    /// rows. On a GPU that is slower: our own products and attention instead of libraries', and `triton` for
    /// --attention-backend. A CPU always computes so.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub batch_invariant: bool,
    /// Tokens of one KV block. Small ones waste less at the end of a sequence, large ones make shorter tables. Default:
    /// the attention backend's choice.
    #[arg(long, env, value_name = "TOKENS")]
    pub block_size: Option<u32>,
    /// Stretch the model's positions by --rope-factor, whatever its config.json says. Default: as config.json says;
    /// linear if --rope-factor is given.
    #[arg(long, env, value_enum, value_name = "KIND")]
    pub rope_scaling: Option<RopeScaling>,
    /// How many times the trained positions a sequence may have. Default: 1.
    #[arg(long, env, value_name = "TIMES", value_parser = factor)]
    pub rope_factor: Option<f32>,
    /// Python interpreter that has headrace_server. Default: the one beside this binary, else the checkout's
    /// .venv/bin/python, else python3 on PATH.
    #[arg(long, env = "HEADRACE_PYTHON", value_name = "PATH")]
    pub python: Option<PathBuf>,
}

/// The processes that compute it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shard")]
pub struct ShardFlags {
    /// Processes that hold the model together, each with a part of every layer on a GPU of its own, or on its share of
    /// --num-threads. Default: one for each GPU that CUDA_VISIBLE_DEVICES or NVIDIA_VISIBLE_DEVICES shows, or that is
    /// there; 1 on a CPU. SageMaker's variable SM_NUM_GPUS is read too.
    #[arg(long, visible_alias = "tensor-parallel-size", env, value_name = "SHARDS")]
    pub num_shard: Option<u32>,
    /// `true`: it is an error if there would be only one shard. `false`: one, unless --num-shard says more.
    #[arg(long, env, value_name = "BOOL", hide_short_help = true)]
    pub sharded: Option<bool>,
    /// Address at which several shards meet: one of this machine that all of them reach.
    #[arg(long, env, value_name = "HOST", default_value = "127.0.0.1", hide_short_help = true)]
    pub master_addr: String,
    /// Port at which they meet. Default: a free one.
    #[arg(long, env, value_name = "PORT", hide_short_help = true)]
    pub master_port: Option<u16>,
    /// Where to compute; `auto` takes a GPU when there is one.
    #[arg(long, env, value_enum, default_value = "auto")]
    pub device: Device,
    /// Share of a GPU's memory that weights, KV cache and computation may take together, above 0 to 1. Has no effect on a
    /// CPU, where --max-batch-total-tokens sizes the KV pool.
    #[arg(long, visible_alias = "gpu-memory-utilization", env, value_name = "SHARE", default_value = "1",
          value_parser = share)]
    pub cuda_memory_fraction: f32,
    /// Numbers of rows, separated by commas: decode steps of so many are recorded as CUDA graphs, which start at once,
    /// and smaller ones are padded to them. 0 alone: none is. Their order does not matter, and one that comes twice, is 0
    /// beside others or is above --max-batch-size counts for nothing. Default: what suits --max-batch-size. Has no effect on
    /// a CPU.
    #[arg(long, env, value_name = "ROWS", value_delimiter = ',')]
    pub cuda_graphs: Option<Vec<u32>>,
    /// CPU threads of all shards together. OMP_NUM_THREADS is read too. Default: all cores.
    #[arg(long, env, value_name = "THREADS")]
    pub num_threads: Option<u32>,
    /// Prefix of the shards' Unix sockets; the rank is added (`PREFIX-0`). Default: a fresh private directory.
    #[arg(long, env, value_name = "PREFIX")]
    pub shard_uds_path: Option<PathBuf>,
}

/// Types a model can be computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    Auto,
    #[value(name = "float32", alias = "float")]
    Float32,
    #[value(name = "bfloat16")]
    Bfloat16,
    #[value(name = "float16", alias = "half")]
    Float16,
}

impl Dtype {
    /// The shard's word for it; `None` leaves it to the shard.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Float32 => Some("float32"),
            Self::Bfloat16 => Some("bfloat16"),
            Self::Float16 => Some("float16"),
        }
    }
}

/// How the weights of linear layers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Quantize {
    /// 8 bits; on a CPU a scale for each 32 weights, on a GPU for each output.
    Int8,
    /// 4 bits, and a scale and a least value for each 32 weights; a CPU's.
    Int4,
    /// 8-bit floating point (e4m3), and a scale for each output; a GPU's.
    Fp8,
    /// A checkpoint that GPTQ made, with 4 bits.
    Gptq,
    /// A checkpoint that AWQ made, with 4 bits.
    Awq,
    /// A checkpoint of 4 or 8 bits in the format of compressed-tensors.
    CompressedTensors,
    /// As --dtype says.
    None,
    /// Without effect: Text Generation Inference's methods that quantize a plain checkpoint.
    #[value(name = "bitsandbytes", aliases = ["bitsandbytes-nf4", "bitsandbytes-fp4", "eetq"], hide = true)]
    OnTheFly,
    /// Without effect: its methods that read a checkpoint which is refused here, or is found to be GPTQ's.
    #[value(name = "exl2", alias = "marlin", hide = true)]
    Checkpoint,
}

impl Quantize {
    /// The shard's word for it; `None` keeps weights in the type of --dtype.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Int8 => Some("int8"),
            Self::Int4 => Some("int4"),
            Self::Fp8 => Some("fp8"),
            Self::Gptq => Some("gptq"),
            Self::Awq => Some("awq"),
            Self::CompressedTensors => Some("compressed-tensors"),
            Self::None | Self::OnTheFly | Self::Checkpoint => None,
        }
    }

    /// Why it changes nothing, for a method that another server has and this one has not.
    pub fn idle(self) -> Option<&'static str> {
        match self {
            Self::OnTheFly => Some(
                "this method is not known here, so weights are kept in the type of --dtype; --quantize int8, int4 (on a \
                 CPU) or fp8 (on a GPU) makes them smaller",
            ),
            Self::Checkpoint => Some(
                "a checkpoint's own files say how it is quantized, and plain weights are kept in the type of --dtype; \
                 --quantize int8, int4 (on a CPU) or fp8 (on a GPU) makes them smaller",
            ),
            Self::Int8 | Self::Int4 | Self::Fp8 | Self::Gptq | Self::Awq | Self::CompressedTensors | Self::None => None,
        }
    }
}

/// Implementations of attention. Aliases are vLLM's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AttentionBackend {
    /// The fastest that is installed.
    Auto,
    /// Kernels of this project, for GPUs.
    #[value(alias = "TRITON_ATTN")]
    Triton,
    /// FlashInfer for steps with prompt chunks, `triton` for steps of decode rows alone.
    #[value(name = "flashinfer", alias = "FLASHINFER")]
    FlashInfer,
    /// FlashAttention 3, on Hopper GPUs.
    #[value(alias = "FLASH_ATTN")]
    Fa3,
    /// The definitions in plain torch: slow, and right on every device.
    Reference,
}

impl AttentionBackend {
    /// The shard's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Triton => "triton",
            Self::FlashInfer => "flashinfer",
            Self::Fa3 => "fa3",
            Self::Reference => "reference",
        }
    }
}

/// Types of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KvCacheDtype {
    Auto,
    Int8,
    #[value(name = "fp8_e4m3fn", aliases = ["fp8", "fp8_e4m3"])]
    Fp8E4m3fn,
    #[value(name = "fp8_e5m2")]
    Fp8E5m2,
}

impl KvCacheDtype {
    /// The shard's word for it; `None` keeps the type of --dtype.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Int8 => Some("int8"),
            Self::Fp8E4m3fn => Some("fp8_e4m3fn"),
            Self::Fp8E5m2 => Some("fp8_e5m2"),
        }
    }
}

/// How positions are stretched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RopeScaling {
    /// All positions are divided by the factor.
    Linear,
    /// The base of the angles grows with the position, beyond the trained ones.
    Dynamic,
}

impl RopeScaling {
    /// The shard's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Dynamic => "dynamic",
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

fn share(text: &str) -> Result<f32, String> {
    let share = text.parse().ok().filter(|&share: &f32| share > 0.0 && share <= 1.0);
    share.ok_or_else(|| "not a share above 0 and up to 1".to_owned())
}

fn factor(text: &str) -> Result<f32, String> {
    let factor = text.parse().ok().filter(|factor: &f32| (1.0..=1024.0).contains(factor));
    factor.ok_or_else(|| "not a number from 1 to 1024".to_owned())
}
