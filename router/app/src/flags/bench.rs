//! Flags of `headrace bench`. They describe a run and have no variables: what an environment says of a server should not
//! change what a client asks of it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::positive;

#[derive(Debug, Args)]
pub struct BenchFlags {
    #[command(flatten)]
    pub target: TargetFlags,
    #[command(flatten)]
    pub load: LoadFlags,
    #[command(flatten)]
    pub asks: AskFlags,
    #[command(flatten)]
    pub figures: FigureFlags,
    /// Start this server for the run, measure its CPU time too, and end it afterwards. {port} stands for a free port.
    /// Example: headrace bench -- headrace router --fake-shard --model-id DIRECTORY --port {port}
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["url", "server_pid"])]
    pub command: Vec<String>,
}

/// Which server, and how it is asked.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct TargetFlags {
    /// Where the server listens. A path is put before the API's.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:3000")]
    pub url: String,
    /// Whose requests and events.
    #[arg(long, value_enum, default_value_t = ApiName::Tgi)]
    pub api: ApiName,
    /// What OpenAI's routes are asked for.
    #[arg(long, value_name = "NAME", default_value = "tgi")]
    pub model: String,
    /// Sent as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Seconds to wait until the server says that it is healthy.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub health_timeout: u64,
}

/// When requests start.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct LoadFlags {
    /// Closed loop: so many streams at once, each with one request after another.
    #[arg(long, value_name = "STREAMS", default_value_t = 64, conflicts_with = "rate",
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub streams: u32,
    /// Open loop: so many requests a second on average, at random moments (Poisson), however many are under way.
    #[arg(long, value_name = "PER_SECOND", value_parser = positive)]
    pub rate: Option<f64>,
    /// Requests of the run. Default: four for each stream, or four seconds' worth of --rate; with --duration no limit.
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub requests: Option<u64>,
    /// Start no request later than so many seconds after the first one.
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub duration: Option<f64>,
    /// Requests before the run that no figure counts.
    #[arg(long, value_name = "REQUESTS", default_value_t = 2)]
    pub warmup: u64,
    /// Seconds after which a request has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub timeout: u64,
}

/// What requests ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub struct AskFlags {
    /// Made-up prompts of so many common words, which most tokenizers turn into as many tokens; each request's differs.
    #[arg(long, value_name = "TOKENS", default_value_t = 32, conflicts_with = "prompt",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub prompt_tokens: u32,
    /// The same prompt for all requests.
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Tokens of each answer: end-of-sequence is ignored, where the server can.
    #[arg(long, value_name = "TOKENS", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub output_tokens: u32,
    /// The same seed gives the same prompts and moments.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

/// What to show.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct FigureFlags {
    /// One line of JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Look into every event instead of counting them: exact times between tokens where a server sends events without
    /// text in the middle of an answer, for several times the CPU of this client.
    #[arg(long)]
    pub parse_events: bool,
    /// The server's process, to show its CPU time (on Linux). Its children are not counted.
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,
    /// Where the log of the server that is started goes. Default: nowhere; its end is shown when it does not start.
    #[arg(long, value_name = "FILE", requires = "command")]
    pub server_log: Option<PathBuf>,
}

/// The words of `--api`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ApiName {
    /// /generate_stream
    Tgi,
    /// /v1/completions
    Openai,
    /// /v1/chat/completions, the prompt as a user's message
    OpenaiChat,
}
