//! Flags of `headrace bench`. They describe a run and have no variables: what an environment says of a server should not
//! change what a client asks of it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use headrace_bench::Shape;

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
    /// Closed loop: so many streams at once, each with one request after another. With as many as there are requests, all
    /// are sent at once. Default: 64.
    #[arg(long, visible_alias = "concurrency", value_name = "STREAMS", conflicts_with = "rate",
          value_parser = clap::value_parser!(u32).range(1..=MOST_STREAMS))]
    pub streams: Option<u32>,
    /// Open loop: so many requests a second on average, however many are under way.
    #[arg(long, value_name = "PER_SECOND", value_parser = positive)]
    pub rate: Option<f64>,
    /// How the times between the requests of an open loop differ. Default: poisson.
    #[arg(long, value_enum)]
    pub arrivals: Option<ArrivalsName>,
    /// With --arrivals bursty: shape of the gamma distribution of the times between requests, as vLLM's --burstiness. 1 is
    /// Poisson, less comes in bursts, more is evener; their standard deviation is 1/√shape of their mean. Default: 0.25.
    #[arg(long, value_name = "SHAPE", value_parser = positive)]
    pub burstiness: Option<f64>,
    /// Run at each of these loads, from low to high, and find the knee: `rate=1,2,4,8` or `concurrency=1,8,48`. With
    /// --slo-ttft or --slo-itl that is the highest load at which 90 % of the requests keep them; else the last one before
    /// the output tokens/s grow by less than 5 %, if they ever do.
    #[arg(long, value_name = "rate=…|concurrency=…", value_parser = sweep, conflicts_with_all = ["streams", "rate"])]
    pub sweep: Option<SweepLoads>,
    /// Requests of the run; with --sweep of each. Default: four for each stream, or four seconds' worth of --rate, or those
    /// of the file; with --duration no limit.
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
    /// Lengths of prompts and answers in tokens. `custom`: those of --prompt-tokens and --output-tokens; `seed`: half 50 and
    /// 20, half 500 and 200; `short`: 50 and 20; `decode`: 32 and 256; `prefill`: 1,024 and 4; `prefix`: 900 that all share
    /// and 30 of their own, and 32; `sharegpt`: log-normal with long tails, medians of 99; `file:PATH`: JSON lines with
    /// `prompt` or `prompt_tokens`, `output_tokens`, and perhaps `at` (seconds from the start).
    #[arg(long, value_name = "NAME", default_value = "custom", value_parser = workload)]
    pub workload: WorkloadName,
    /// Make prompts of exactly so many tokens by this tokenizer.json (or a directory that has one). Without it a token is a
    /// common English word, which most tokenizers turn into one.
    #[arg(long, value_name = "PATH", conflicts_with = "prompt")]
    pub tokenizer: Option<PathBuf>,
    /// Tokens of each prompt; each request's differs. Default: 32.
    #[arg(long, value_name = "TOKENS", conflicts_with = "prompt",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub prompt_tokens: Option<u32>,
    /// The same prompt for all requests.
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Tokens of each answer: end-of-sequence is ignored, where the server can. Default: 256.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub output_tokens: Option<u32>,
    /// The same seed gives the same prompts and moments.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

/// What to show.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct FigureFlags {
    /// A good answer has its first token within so many milliseconds. The share of good requests, and their requests/s and
    /// tokens/s, are the goodput.
    #[arg(long, visible_alias = "ttft-limit-ms", value_name = "MILLISECONDS", value_parser = positive)]
    pub slo_ttft: Option<f64>,
    /// A good answer has at most so many milliseconds between its tokens, on average over the answer, as vLLM's
    /// `--goodput tpot:…`.
    #[arg(long, visible_alias = "itl-limit-ms", value_name = "MILLISECONDS", value_parser = positive)]
    pub slo_itl: Option<f64>,
    /// One line of JSON: on standard output instead of the table, or into FILE beside it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Write a page with pictures: distributions, what went on when, and with --sweep the curves. It refers to nothing
    /// outside itself.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
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

/// The words of `--arrivals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArrivalsName {
    /// At random moments, independent of each other
    Poisson,
    /// In bursts, as --burstiness says
    Bursty,
    /// All as far apart
    Even,
}

/// The words of `--workload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadName {
    Custom,
    Named(&'static str, Shape),
    File(PathBuf),
}

const NAMED: [(&str, Shape); 6] = [
    ("seed", Shape::Seed),
    ("short", Shape::SHORT),
    ("decode", Shape::DECODE),
    ("prefill", Shape::PREFILL),
    ("prefix", Shape::Prefix),
    ("sharegpt", Shape::Sharegpt),
];

fn workload(text: &str) -> Result<WorkloadName, String> {
    if text == "custom" {
        return Ok(WorkloadName::Custom);
    }
    if let Some(path) = text.strip_prefix("file:").filter(|path| !path.is_empty()) {
        return Ok(WorkloadName::File(path.into()));
    }
    let named = NAMED.iter().find(|(name, _)| *name == text).map(|&(name, shape)| WorkloadName::Named(name, shape));
    named.ok_or_else(|| {
        let names = NAMED.map(|(name, _)| name).join(", ");
        format!("not one of custom, {names} and file:PATH")
    })
}

/// The loads of `--sweep`, from low to high.
#[derive(Clone, Debug, PartialEq)]
pub enum SweepLoads {
    Rates(Vec<f64>),
    Streams(Vec<u32>),
}

fn sweep(text: &str) -> Result<SweepLoads, String> {
    let what = "not like rate=1,2,4,8 or concurrency=1,8,48";
    let (name, loads) = text.split_once('=').ok_or(what)?;
    let mut loads: Vec<f64> = loads.split(',').map(positive).collect::<Result<_, _>>().map_err(|_| what)?;
    loads.sort_unstable_by(f64::total_cmp);
    if let Some(pair) = loads.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("{} is there twice; keep one", pair[0]));
    }
    match name {
        "rate" if loads.iter().all(|rate| rate.is_finite()) => Ok(SweepLoads::Rates(loads)),
        "concurrency" | "streams" => {
            let streams = loads.iter().map(|&load| {
                let whole = load.fract() == 0.0 && load <= MOST_STREAMS as f64;
                whole.then_some(load as u32)
            });
            let streams: Option<_> = streams.collect();
            streams
                .map(SweepLoads::Streams)
                .ok_or_else(|| format!("streams are whole numbers from 1 to {MOST_STREAMS}"))
        }
        _ => Err(what.to_owned()),
    }
}

const MOST_STREAMS: i64 = 16_384;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_a_sweep_are_sorted_and_each_is_there_once() {
        assert_eq!(sweep("rate=4,0.5,1"), Ok(SweepLoads::Rates(vec![0.5, 1.0, 4.0])));
        assert_eq!(sweep("concurrency=48,1"), Ok(SweepLoads::Streams(vec![1, 48])));
        assert_eq!(sweep("rate=2,1,2").expect_err("two alike"), "2 is there twice; keep one");
        for text in ["rate", "rate=", "rate=1,,2", "rate=0", "rate=inf", "users=1", "1,2"] {
            assert!(sweep(text).expect_err(text).contains("rate=1,2,4,8"), "{text}");
        }
        for text in ["concurrency=1.5", "concurrency=16385"] {
            assert!(sweep(text).expect_err(text).contains("from 1 to 16384"), "{text}");
        }
    }

    #[test]
    fn a_workload_is_a_name_or_a_file() {
        assert_eq!(workload("decode"), Ok(WorkloadName::Named("decode", Shape::DECODE)));
        assert_eq!(workload("file:a/b.jsonl"), Ok(WorkloadName::File("a/b.jsonl".into())));
        for text in ["file:", "sed", ""] {
            assert!(workload(text).expect_err(text).contains("sharegpt and file:PATH"), "{text}");
        }
    }
}
