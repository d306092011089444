//! Flags of `headrace simulate`. Those of scheduling and batching are the server's; the others describe a run and have
//! no variables: what an environment says of a server should not change what a simulation shows.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::scheduling::{Policy, positive_milliseconds};
use super::{BatchingFlags, SchedulingFlags, positive};
use headrace_scheduler::Micros;

#[derive(Debug, Args)]
pub struct SimulateFlags {
    #[command(flatten)]
    pub traffic: TrafficFlags,
    #[command(flatten)]
    pub trace: TraceFlags,
    #[command(flatten)]
    pub machine: MachineFlags,
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub batching: BatchingFlags,
    #[command(flatten)]
    pub scheduling: SchedulingFlags,
    /// Requests running and waiting together; one more is rejected. Default: no limit.
    #[arg(long, env, value_name = "REQUESTS", help_heading = "Limits of a request")]
    pub max_concurrent_requests: Option<u32>,
}

/// Who asks for what, and when.
#[derive(Debug, Args)]
#[command(next_help_heading = "Traffic")]
pub struct TrafficFlags {
    /// Requests to simulate: a JSON object a line with at_ms, prompt_tokens, output_tokens, and if wanted
    /// max_new_tokens, tenant, priority, deadline_ms, prefix and prefix_tokens (requests that name the same prefix share
    /// those first tokens).
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    pub workload: Option<PathBuf>,
    /// Made-up requests instead of a file's. Default: seed.
    #[arg(long, value_enum, value_name = "PRESET")]
    pub preset: Option<PresetName>,
    /// Requests of the preset.
    #[arg(long, value_name = "REQUESTS", default_value_t = 200, conflicts_with = "workload",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub requests: u32,
    /// Requests per second of the preset, on average; `inf`: all at once.
    #[arg(long, value_name = "PER_SECOND", default_value = "8", conflicts_with = "workload", value_parser = positive)]
    pub rate: f64,
    /// The same seed gives the same requests.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, conflicts_with = "workload")]
    pub seed: u64,
    /// How many times the length of its answer a client of the preset allows. Default: 1; with sharegpt 1,024 tokens
    /// for every request.
    #[arg(long, value_name = "TIMES", conflicts_with = "workload", value_parser = positive)]
    pub max_new_ratio: Option<f64>,
}

/// What a server did, as `--trace` recorded it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Traces")]
pub struct TraceFlags {
    /// Make every decision of a trace again and compare it, byte for byte. FILE is what the server's --trace named: all
    /// its segments FILE.000001, FILE.000002, …; or one of these.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "preset", "compare", "sweep"])]
    pub replay: Option<PathBuf>,
    /// With --replay: run the trace's requests again under another knob, such as max-batch-size=8, with steps that cost
    /// what they did, and compare latencies with the recorded ones. May be repeated; all other knobs are the trace's.
    /// `none` changes nothing: how good is the prediction? `none` as a value takes a limit away.
    #[arg(long, value_name = "KNOB=VALUE", requires = "replay")]
    pub what_if: Vec<String>,
    /// Make a cost model from the steps of a trace, as TOML for --cost-model.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "preset", "compare", "sweep", "replay"])]
    pub fit: Option<PathBuf>,
    /// With --fit: write the cost model here and its errors to standard output.
    #[arg(long, value_name = "FILE", requires = "fit")]
    pub fit_output: Option<PathBuf>,
}

/// What steps cost, and on how much memory.
#[derive(Debug, Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineFlags {
    /// What a step costs: unit (a millisecond whatever is in it), cpu-smollm2, a100-7b, h200-8b, or a TOML file with
    /// base, per_token, per_row, per_context and per_pair in µs. Default: unit; with --what-if fitted to the trace.
    #[arg(long, value_name = "NAME|FILE")]
    pub cost_model: Option<String>,
    /// Microseconds from the plan of a step until the shard can begin it; hidden while another step runs. Default: as
    /// the cost model has it, 2000 for real machines, 0 for unit.
    #[arg(long, value_name = "MICROSECONDS")]
    pub router_us: Option<u64>,
    /// Tokens of one KV block.
    #[arg(long, env, value_name = "TOKENS", default_value_t = 32)]
    pub block_size: u32,
}

/// What to show.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputFlags {
    /// One line of JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Draw who was in which row when, as SVG.
    #[arg(long, value_name = "FILE", conflicts_with = "sweep")]
    pub timeline: Option<PathBuf>,
    /// Run several policies on the same requests and show them side by side.
    #[arg(long, value_name = "POLICY,…", value_enum, value_delimiter = ',', conflicts_with = "sweep")]
    pub compare: Vec<Policy>,
    /// Run the preset at growing rates: `rate=1..20`, or `rate=1..20:0.5` for steps other than 1. Finds the knee.
    #[arg(long, value_name = "rate=LOW..HIGH", conflicts_with = "workload", value_parser = rates)]
    pub sweep: Option<headrace_simulator::Rates>,
    /// With --sweep: find the highest rate whose p99 time to first token is within so many milliseconds…
    #[arg(long, value_name = "MILLISECONDS", requires = "sweep", value_parser = positive_milliseconds)]
    pub ttft_limit_ms: Option<Micros>,
    /// …and whose p99 time between tokens is within so many.
    #[arg(long, value_name = "MILLISECONDS", requires = "sweep", value_parser = positive_milliseconds)]
    pub itl_limit_ms: Option<Micros>,
}

/// The words of `--preset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PresetName {
    /// Half 50 prompt and 20 answer tokens, half 500 and 200.
    Seed,
    /// Lengths of the ShareGPT conversations.
    Sharegpt,
    /// The lengths of seed, in bursts.
    Bursty,
    /// Questions behind eight shared system prompts.
    Prefix,
    /// One prompt of 30,000 tokens among chats.
    Adversary,
}

fn rates(text: &str) -> Result<headrace_simulator::Rates, String> {
    let rates = text.strip_prefix("rate=").and_then(headrace_simulator::Rates::parse);
    rates.ok_or_else(|| "not like rate=1..20 or rate=0.5..4:0.5, with at most 1,000 rates above 0".to_owned())
}
