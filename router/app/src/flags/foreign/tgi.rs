//! Text Generation Inference's flags that change nothing here, with their variables.

use super::Foreign;
use super::Shape::{self, Switch, Toggle, Value};
use super::Verdict::{self, NoEffect};

pub const HEADING: &str = "Known from Text Generation Inference";

const NO_WATERMARK: Verdict = NoEffect("answers are not watermarked, and a request that asks for it is refused");
const NO_NGROK: Verdict = NoEffect("no tunnel is opened; run one beside the server");

#[rustfmt::skip]
pub const FLAGS: &[Foreign] = &[
    row("speculate", "SPECULATE", Value, NoEffect("tokens are computed one by one; the answers are the same")).unless(&["0"]),
    row("lora-adapters", "LORA_ADAPTERS", Value, NoEffect("no adapters are loaded, and a request that names one is refused")),
    row("trust-remote-code", "TRUST_REMOTE_CODE", Toggle, NoEffect("no code of a model repository is ever run")),
    row("disable-custom-kernels", "DISABLE_CUSTOM_KERNELS", Switch, NoEffect("the shard picks its kernels by device")),
    row("weights-cache-override", "WEIGHTS_CACHE_OVERRIDE", Value, NoEffect("--cache-dir says where converted models are kept, --huggingface-hub-cache where downloads are")),
    row("watermark-gamma", "WATERMARK_GAMMA", Value, NO_WATERMARK),
    row("watermark-delta", "WATERMARK_DELTA", Value, NO_WATERMARK),
    row("usage-stats", "USAGE_STATS", Value, NoEffect("nothing is ever reported to anyone")).unless(&["off"]),
    row("ngrok", "NGROK", Switch, NO_NGROK),
    row("ngrok-authtoken", "NGROK_AUTHTOKEN", Value, NO_NGROK),
    row("ngrok-edge", "NGROK_EDGE", Value, NO_NGROK),
    row("disable-grammar-support", "DISABLE_GRAMMAR_SUPPORT", Switch, NoEffect("this version takes no grammars")),
    row("enable-prefill-logprobs", "ENABLE_PREFILL_LOGPROBS", Switch, NoEffect("requests that ask for them get them")),
    row("max-image-fetch-size", "MAX_IMAGE_FETCH_SIZE", Value, NoEffect("this version takes no images")),
    row("messages-api-enabled", "MESSAGES_API_ENABLED", Switch, NoEffect("chat is always there")),
];

const fn row(name: &'static str, variable: &'static str, shape: Shape, verdict: Verdict) -> Foreign {
    Foreign { name, variable: Some(variable), short: None, shape, harmless: &[], verdict }
}
