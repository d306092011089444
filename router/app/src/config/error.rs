//! What is wrong with a command line: one sentence each, naming the flags and what to do.

use std::path::PathBuf;

use headrace_telemetry::BadEndpoint;

use crate::flags::Opposed;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("--{flag} is not available in this version: {instead}")]
    NotAvailable { flag: &'static str, instead: &'static str },
    /// Each says the opposite of the other, or the same in another way.
    #[error("{0} and {1} contradict each other; keep one")]
    Contradiction(&'static str, &'static str),
    #[error("--{} and --{} contradict each other; keep one", .0.0, .0.1)]
    Opposed(Opposed),
    #[error("{flag} is 0; it must be at least 1")]
    Zero { flag: &'static str },
    #[error("--max-total-tokens is 1; it must be at least 2: one token of a prompt and one of its answer")]
    TotalOfOne,
    #[error("--num-threads {asked} is more than {limit}; as many as the machine has cores are enough")]
    TooManyThreads { asked: u32, limit: u32 },
    #[error("--max-input-tokens and its old name --max-input-length are both set; keep --max-input-tokens")]
    BothMaxInput,
    #[error(
        "--max-input-tokens {input} must be less than --max-total-tokens {total}: an answer needs at least one token"
    )]
    InputNotBelowTotal { input: u32, total: u32 },
    #[error(
        "--max-batch-total-tokens {pool} is less than --max-total-tokens {total}: the KV pool must hold the longest \
         request; raise the first or lower the second"
    )]
    PoolBelowTotal { pool: u32, total: u32 },
    #[error(
        "--max-batch-prefill-tokens {prefill} is more than --max-batch-total-tokens {pool}: a step cannot prefill more \
         than the KV pool holds; lower the first or raise the second"
    )]
    PrefillAbovePool { prefill: u32, pool: u32 },
    #[error(
        "--max-num-batched-tokens {budget} leaves no prompt token beside the {rows} decode rows of --max-batch-size; \
         raise the first or lower the second"
    )]
    NoTokenBesideRows { budget: u32, rows: u32 },
    #[error(
        "--no-chunked-prefill computes a prompt in one step, but --max-batch-prefill-tokens {prefill} is less than \
         --max-input-tokens {input}; raise the first, lower the second, or leave out --no-chunked-prefill"
    )]
    PrefillBelowInput { prefill: u32, input: u32 },
    #[error(
        "--target-itl-ms and --no-chunked-prefill are both set, and only a prompt that is cut into chunks can keep to a \
         time; keep one"
    )]
    TargetWithoutChunks,
    #[error(
        "--group-size {group} is more than --max-batch-size {rows}: a group runs in one batch; lower the first or raise \
         the second"
    )]
    GroupAboveRows { group: u32, rows: u32 },
    #[error("--max-batch-total-tokens is more than 4 billion tokens when rounded up to whole blocks; lower it")]
    PoolTooLarge,
    #[error("--num-shard {asked} is more than the {limit} processes that a model may be split over; lower it")]
    TooManyShards { asked: u32, limit: u32 },
    #[error(
        "--num-shard {shards} is more than this process may use GPUs, which are {gpus}; lower it, show more of them with \
         CUDA_VISIBLE_DEVICES, or compute on the CPU with --device cpu"
    )]
    ShardsAboveGpus { shards: u32, gpus: u32 },
    #[error(
        "--sharded true asks for several shards, but {found}; say how many with --num-shard, or leave out --sharded"
    )]
    NothingToShard { found: String },
    #[error("--what-if {given}: {reason}")]
    WhatIf { given: String, reason: String },
    #[error("--waiting-served-ratio {given} must be a number between 0 and 1000")]
    Ratio { given: String },
    #[error("--model-id is empty; name a hub id, a directory, a .gguf file, or leave it out for the embedded model")]
    NoModel,
    #[error("{flag} {}: no such file or directory", path.display())]
    Missing { flag: &'static str, path: PathBuf },
    #[error("{flag} {} is not a directory", path.display())]
    NotADirectory { flag: &'static str, path: PathBuf },
    #[error("--hostname {given} is neither an IP address nor a name of this machine: {reason}")]
    Hostname { given: String, reason: String },
    #[error(
        "--api-key number {number} is empty or has spaces or other characters that no header can hold; write another"
    )]
    ApiKey { number: u32 },
    #[error("--cors-allow-origin {given} is no origin; write a scheme and a host, such as https://example.org")]
    Origin { given: String },
    #[error(
        "--shard-uds-path {} is too long: a Unix socket's path has at most {limit} bytes, rank included", path.display()
    )]
    SocketPathTooLong { path: PathBuf, limit: usize },
    #[error("--log-level {given}: {reason}; write off, error, warn, info, debug, trace, or a list of module=level")]
    LogLevel { given: String, reason: String },
    #[error("--otlp-endpoint: {0}")]
    OtlpEndpoint(#[from] BadEndpoint),
    #[error("headrace router needs --shards ADDRESS,… or --fake-shard; to start a shard too, use headrace serve")]
    NoShards,
    #[error("the command after -- does not say {{port}}; write it where the server is told its port")]
    NoPort,
    #[error("--arrivals is for an open loop; give --rate or --sweep rate=… too, or leave it out")]
    ArrivalsOfClosedLoop,
    #[error("--burstiness says how bursty --arrivals bursty is; give both or neither")]
    BurstinessWithoutBursts,
    #[error("{flag} and --workload both say what requests are like; leave out {flag}, or --workload")]
    LengthsOfWorkload { flag: &'static str },
}
