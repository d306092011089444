//! Text Generation Inference's other flags: an old command line must keep working, or say why it cannot.
//!
//! A flag that would change answers, or who may ask, is refused: pretending would be worse. The others are accepted with
//! one warning each. One row per flag; a feature that arrives takes its row away.

use clap::builder::BoolishValueParser;
use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use Shape::{Switch, Value};
use Verdict::{NoEffect, NotAvailable};

/// What becomes of a flag that is known but not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted; the sentence says why it changes nothing.
    NoEffect(&'static str),
    /// Refused: without it, answers or access would not be what was asked for.
    NotAvailable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Switch,
    Value,
}

struct Foreign {
    name: &'static str,
    variable: Option<&'static str>,
    shape: Shape,
    verdict: Verdict,
}

const fn row(name: &'static str, variable: &'static str, shape: Shape, verdict: Verdict) -> Foreign {
    Foreign { name, variable: Some(variable), shape, verdict }
}

const ONE_PROCESS: Verdict = NoEffect("one shard has no peers to meet");
const NO_WATERMARK: Verdict = NoEffect("answers are not watermarked in this version");
const NO_TRACES: Verdict = NoEffect("traces are not exported in this version");
const NO_NGROK: Verdict = NoEffect("no tunnel is opened; run one beside the server");

const FOREIGN: &[Foreign] = &[
    row("quantize", "QUANTIZE", Value, NotAvailable),
    row("speculate", "SPECULATE", Value, NotAvailable),
    row("kv-cache-dtype", "KV_CACHE_DTYPE", Value, NotAvailable),
    row("lora-adapters", "LORA_ADAPTERS", Value, NotAvailable),
    row("rope-scaling", "ROPE_SCALING", Value, NotAvailable),
    row("rope-factor", "ROPE_FACTOR", Value, NotAvailable),
    row("api-key", "API_KEY", Value, NotAvailable),
    row("trust-remote-code", "TRUST_REMOTE_CODE", Switch, NoEffect("no code of a model repository is ever run")),
    row("disable-custom-kernels", "DISABLE_CUSTOM_KERNELS", Switch, NoEffect("the shard picks its kernels by device")),
    row("cuda-graphs", "CUDA_GRAPHS", Value, NoEffect("graphs are not captured in this version")),
    row("cuda-memory-fraction", "CUDA_MEMORY_FRACTION", Value, NoEffect("--max-batch-total-tokens sizes the KV pool")),
    row("weights-cache-override", "WEIGHTS_CACHE_OVERRIDE", Value, NoEffect("--cache-dir says where models are kept")),
    row("master-addr", "MASTER_ADDR", Value, ONE_PROCESS),
    row("master-port", "MASTER_PORT", Value, ONE_PROCESS),
    row("watermark-gamma", "WATERMARK_GAMMA", Value, NO_WATERMARK),
    row("watermark-delta", "WATERMARK_DELTA", Value, NO_WATERMARK),
    row("otlp-endpoint", "OTLP_ENDPOINT", Value, NO_TRACES),
    row("otlp-service-name", "OTLP_SERVICE_NAME", Value, NO_TRACES),
    row("usage-stats", "USAGE_STATS", Value, NoEffect("nothing is ever reported to anyone")),
    row("ngrok", "NGROK", Switch, NO_NGROK),
    row("ngrok-authtoken", "NGROK_AUTHTOKEN", Value, NO_NGROK),
    row("ngrok-edge", "NGROK_EDGE", Value, NO_NGROK),
    row("disable-grammar-support", "DISABLE_GRAMMAR_SUPPORT", Switch, NoEffect("this version takes no grammars")),
    row("enable-prefill-logprobs", "ENABLE_PREFILL_LOGPROBS", Switch, NoEffect("requests that ask for them get them")),
    row("messages-api-enabled", "MESSAGES_API_ENABLED", Switch, NoEffect("it has been the default for long")),
    // Without a variable, as in TGI: `ENV` means something else on many machines.
    Foreign { name: "env", variable: None, shape: Switch, verdict: NoEffect("the start-up log says what is running") },
];

/// The flags of the table that were given.
#[derive(Debug, Default)]
pub struct ForeignFlags {
    /// Long name (without dashes) and verdict, in the table's order.
    pub given: Vec<(&'static str, Verdict)>,
}

impl Args for ForeignFlags {
    fn augment_args(command: Command) -> Command {
        command.next_help_heading("Known from Text Generation Inference").args(FOREIGN.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ForeignFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = FOREIGN.iter().filter(|flag| is_given(flag, matches));
        Ok(Self { given: given.map(|flag| (flag.name, flag.verdict)).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(flag: &Foreign) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).hide_short_help(true).help(match flag.verdict {
        NoEffect(why) => format!("Accepted without effect: {why}"),
        NotAvailable => "Not available in this version: an error".to_owned(),
    });
    let arg = match flag.shape {
        Switch => arg.action(ArgAction::SetTrue).value_parser(BoolishValueParser::new()),
        Value => arg.value_name("VALUE").allow_hyphen_values(true),
    };
    match flag.variable {
        Some(variable) => arg.env(variable),
        None => arg.short('e'),
    }
}

/// A switch that is off, and no drafts (`--speculate 0`), ask for nothing.
fn is_given(flag: &Foreign, matches: &ArgMatches) -> bool {
    match flag.shape {
        Switch => matches.get_flag(flag.name),
        Value => matches.get_one::<String>(flag.name).is_some_and(|value| flag.name != "speculate" || value != "0"),
    }
}
