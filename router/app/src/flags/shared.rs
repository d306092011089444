//! Flags that `serve` and `router` have in common.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;

use super::{SurfaceFlags, numbers};

/// What one request may ask for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of a request")]
pub struct LimitFlags {
    /// Requests running and waiting together; one more is answered 429. More wait longer, and none of them is refused.
    /// With `--scheduling-policy fair`, a tenant below its equal share takes the place of another's newest request.
    #[arg(long, env, value_name = "REQUESTS", default_value_t = 128)]
    pub max_concurrent_requests: u32,
    /// Tokens of a prompt; a longer one is refused. Default: one less than --max-total-tokens.
    #[arg(long, env, value_name = "TOKENS")]
    pub max_input_tokens: Option<u32>,
    /// Old name of --max-input-tokens.
    #[arg(long, env, value_name = "TOKENS", hide_short_help = true)]
    pub max_input_length: Option<u32>,
    /// Tokens of prompt and answer together; 8k is 8000 and 8K is 8192. Default: the smaller of the model's context and
    /// the KV pool; more than either is an error, so that a request alone can always finish.
    #[arg(long, visible_alias = "max-model-len", env, value_name = "TOKENS", value_parser = numbers::tokens)]
    pub max_total_tokens: Option<u32>,
    /// Answers that one request may have drawn to keep the best of.
    #[arg(long, env, value_name = "ANSWERS", default_value_t = 2)]
    pub max_best_of: u32,
    /// Stop sequences of one request.
    #[arg(long, env, value_name = "SEQUENCES", default_value_t = 4)]
    pub max_stop_sequences: u32,
    /// Most likely tokens that a request may have listed beside each sampled one. Default: 5; on OpenAI's routes 20 of a
    /// chat and 5 of a completion, as there.
    #[arg(long, visible_alias = "max-logprobs", env, value_name = "TOKENS")]
    pub max_top_n_tokens: Option<u32>,
    /// Prompts of one completions request.
    #[arg(long, env, value_name = "PROMPTS", default_value_t = 4)]
    pub max_client_batch_size: u32,
}

/// How requests share steps and the KV pool.
#[derive(Debug, Args)]
#[command(next_help_heading = "Batching")]
pub struct BatchingFlags {
    /// Rows of the running batch. More rows share each pass over the weights, but each needs KV blocks and makes the
    /// step of everybody a little longer. Default: 256, or half of --max-num-batched-tokens where that is less.
    #[arg(long, visible_alias = "max-num-seqs", env, value_name = "ROWS")]
    pub max_batch_size: Option<u32>,
    /// Prompt tokens of one step; a longer prompt is cut into chunks. More finishes prompts sooner, fewer keeps the
    /// gaps between the tokens of running answers short. Default: 512 on a CPU, 4096 on a GPU.
    #[arg(long, env, value_name = "TOKENS")]
    pub max_batch_prefill_tokens: Option<u32>,
    /// vLLM's budget of a step: prompt tokens and one token of each decoding row together. It sets
    /// --max-batch-prefill-tokens to what is left when --max-batch-size rows decode.
    #[arg(long, env, value_name = "TOKENS", hide_short_help = true, value_parser = numbers::tokens)]
    pub max_num_batched_tokens: Option<u32>,
    /// Size of the KV pool in tokens, rounded up to whole blocks. Default: what the shard measures: half of the
    /// available memory on a CPU, all that is free on a GPU, but no more than a full batch can use.
    #[arg(long, env, value_name = "TOKENS")]
    pub max_batch_total_tokens: Option<u32>,
    /// While others decode, admit waiting requests only when there are at least this many waiting for each running one
    /// (0.3: three for ten), or after --max-waiting-tokens. Protects running answers at the newcomers' cost. Default:
    /// 0, admit at once; 0.3 with --no-chunked-prefill, or if only --max-waiting-tokens is given.
    #[arg(long, env, value_name = "RATIO")]
    pub waiting_served_ratio: Option<f32>,
    /// Admit waiting requests, however few, when this many decode steps have passed since the last admission. Default:
    /// 0, admit at once; 20 with --no-chunked-prefill, or if only --waiting-served-ratio is given.
    #[arg(long, env, value_name = "STEPS")]
    pub max_waiting_tokens: Option<u32>,
    /// Preempt every request once, at a token drawn from this seed: answers must not change.
    #[arg(long, value_name = "SEED", hide = true)]
    pub debug_preempt_once_seed: Option<u64>,
}

/// What shards may take of memory beside weights and KV pool.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shard")]
pub struct MemoryFlags {
    /// GiB of host memory of each shard for the KV of preempted requests: copied there and back, where that is quicker
    /// than computing it again, which the shard measures at its start. A GPU's is taken at once and stays in memory; on
    /// a CPU the pool itself may as well be larger. 0: none. Default: 4 on a GPU, 0 on a CPU.
    #[arg(long, env, value_name = "GIB", value_parser = numbers::gibibytes)]
    pub swap_space: Option<u64>,
}

/// Where and how to listen.
#[derive(Debug, Args)]
#[command(next_help_heading = "HTTP")]
pub struct HttpFlags {
    /// Address to listen on: an IP address or a name of this machine. 0.0.0.0 is every interface. A HOSTNAME in the
    /// environment that is no IP address (containers set one) counts as 0.0.0.0.
    #[arg(long, visible_alias = "host", env, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub hostname: String,
    /// Port to listen on; 0 takes a free one, and the ready line says which. Vertex AI's variable AIP_HTTP_PORT and
    /// SageMaker's SAGEMAKER_BIND_TO_PORT win over PORT, which images set.
    #[arg(long, short, env, value_name = "PORT", default_value_t = 3000)]
    pub port: u16,
    /// What clients call the model on OpenAI's routes, instead of its --model-id. Several may be given: all are listed
    /// by /v1/models, and a request that names none is answered by the first. A request for any other name is answered
    /// 404.
    #[arg(long, env, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    pub served_model_name: Vec<String>,
    /// Origin that browsers may call from; may be repeated. Default: any.
    #[arg(long, env, value_name = "ORIGIN", value_delimiter = ',')]
    pub cors_allow_origin: Vec<String>,
    /// vLLM's --cors-allow-origin: a list in JSON.
    #[arg(long, hide_short_help = true, value_name = "JSON", value_parser = origins)]
    pub allowed_origins: Option<Origins>,
    /// What the answers' x-compute-type says, such as 1-nvidia-l4. Default: the shard's device.
    #[arg(long, env, value_name = "TEXT")]
    pub compute_type: Option<String>,
    /// Size of a request's body in bytes; a larger one is answered 413.
    #[arg(long, env, value_name = "BYTES", default_value_t = 2_000_000)]
    pub payload_limit: u64,
    /// Threads that validate and tokenize prompts.
    #[arg(long, env, value_name = "THREADS", default_value_t = 2)]
    pub validation_workers: u32,
    /// A tokenizer_config.json to read instead of the model's: its chat template and special tokens.
    #[arg(long, env, value_name = "FILE")]
    pub tokenizer_config_path: Option<PathBuf>,
    #[command(flatten)]
    pub surface: SurfaceFlags,
    /// A file with the chat template to use instead of the model's: Jinja, as transformers renders it.
    #[arg(long, env, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// In chats, text of a message that spells a special token stays text: a user who types `<|im_end|>` ends no turn.
    /// Only the template writes special tokens then. Off, as in Text Generation Inference.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub no_special_tokens_in_messages: bool,
}

/// How the process speaks and ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs and shutdown")]
pub struct ProcessFlags {
    /// One JSON object per log line instead of text, the two lines on standard output that say the server is ready among
    /// them. Logs go to standard error either way.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub json_output: bool,
    /// Colours in the text log. Default: on a terminal.
    #[arg(long, env, value_name = "BOOL", value_parser = BoolishValueParser::new(), hide_short_help = true)]
    pub log_colorize: Option<bool>,
    /// What to log: off, error, warn, info, debug, trace, or a list of `module=level`.
    #[arg(long, env, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Seconds that running requests have to finish after the first SIGTERM or SIGINT. A second signal ends at once.
    #[arg(long, short, env, value_name = "SECONDS", default_value_t = 90)]
    pub graceful_termination_timeout: u64,
    /// Record every input and plan of the scheduler in FILE.000001, FILE.000002, …: what `headrace simulate --replay`
    /// reads. No text and no token ids; the last eight files of 32 MB are kept.
    #[arg(long, env, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Log what this runs on before anything starts: the versions of this program, of the Python that runs the shard and of
    /// its torch, the commit that was built, GPUs. For reports of bugs.
    #[arg(long, short)]
    pub env: bool,
    /// Seconds a shard has to answer one step before it counts as dead.
    #[arg(long, env, value_name = "SECONDS", default_value_t = 120)]
    pub step_timeout: u64,
}

/// Origins of a JSON list.
#[derive(Clone, Debug)]
pub struct Origins(pub Vec<String>);

fn origins(text: &str) -> Result<Origins, String> {
    serde_json::from_str(text).map(Origins).map_err(|_| "not a list such as [\"https://example.org\"]".to_owned())
}
