//! Variables beside those that clap reads for each flag: other names for the same value, and those of Text Generation
//! Inference that change nothing here.

use std::env::var_os;
use std::ffi::OsStr;

use clap::Arg;
use clap::builder::Resettable;

use super::foreign::FALSE_WORDS;

/// A flag's variables in the order in which they are looked at; the first that is set and not empty counts. A flag that
/// is not here, by any of its names, has its own alone.
///
/// The platforms' ports come before `PORT`, which images set. Only the router has a `--tokenizer-name`, another name of
/// its `--model-id`.
const VARIABLES: &[(&str, &[&str])] = &[
    ("tokenizer-name", &["TOKENIZER_NAME", "MODEL_ID", "HF_MODEL_ID"]),
    ("model-id", &["MODEL_ID", "HF_MODEL_ID"]),
    ("revision", &["REVISION", "HF_MODEL_REVISION"]),
    ("quantize", &["QUANTIZE", "HF_MODEL_QUANTIZE"]),
    ("trust-remote-code", &["TRUST_REMOTE_CODE", "HF_MODEL_TRUST_REMOTE_CODE"]),
    ("num-shard", &["NUM_SHARD", "SM_NUM_GPUS"]),
    ("port", &["AIP_HTTP_PORT", "SAGEMAKER_BIND_TO_PORT", "PORT"]),
    ("num-threads", &["NUM_THREADS", "OMP_NUM_THREADS"]),
    ("hf-token", &["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN"]),
    ("api-key", &["API_KEY", "VLLM_API_KEY"]),
];

/// Text Generation Inference's variables that no flag of its own stands for, and why they change nothing.
const IDLE: &[(&str, &str)] = &[
    ("ATTENTION", "the shard takes the fastest attention that is installed; --attention-backend names one"),
    ("USE_FLASH_ATTENTION", "there is one way of attention, and it is never padded"),
    ("TGI_WIGGLE_ROOM", "a tenth of a GPU's free memory stays free; --cuda-memory-fraction limits the whole"),
    ("XPU_MEMORY_FRACTION", "this version computes on CPUs and NVIDIA GPUs"),
    ("REQUEST_LOGPROBS", "requests that ask for the prompt's log-probabilities get them"),
    ("EXLLAMA_VERSION", "this version does not read weights in the format of GPTQ"),
    ("DISABLE_EXLLAMA", "this version does not read weights in the format of GPTQ"),
    ("ROCM_USE_FLASH_ATTN_V2_TRITON", "this version computes on CPUs and NVIDIA GPUs"),
    ("ROCM_USE_CUSTOM_PAGED_ATTN", "this version computes on CPUs and NVIDIA GPUs"),
    ("ROCM_USE_SKINNY_GEMM", "this version computes on CPUs and NVIDIA GPUs"),
    ("DEBUG", "there is no fake process group; --log-level debug says more"),
    ("HF_HUB_ENABLE_HF_TRANSFER", "the hub's client downloads in its own way"),
];

/// Variables that libraries of the shard read by themselves, as they did under Text Generation Inference. Listed for
/// the reference.
pub const INHERITED: &[(&str, &str)] = &[
    ("HF_HUB_OFFLINE", "the hub's client"),
    ("HF_HUB_USER_AGENT_ORIGIN", "the hub's client"),
    ("HF_ENDPOINT, HF_HOME, HF_HUB_CACHE", "the hub's client"),
    ("CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES", "CUDA; and the default of --num-shard"),
    ("PYTORCH_TUNABLEOP_ENABLED, PYTORCH_TUNABLEOP_TUNING", "torch"),
];

/// One of [`IDLE`] that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    pub variable: &'static str,
    pub why: &'static str,
}

/// The argument with the variable that its value comes from. One that is empty counts as not set: that is how scripts
/// and compose files leave one out.
pub fn choose(arg: Arg) -> Arg {
    let Some(own) = arg.get_env() else { return arg };
    match set_among(others(&arg)) {
        Some(variable) => arg.env(variable),
        None if var_os(own).is_some_and(|value| value.is_empty()) => arg.env(Resettable::Reset),
        None => arg,
    }
}

/// All variables of an argument, first the one that wins.
pub fn of(arg: &Arg) -> Vec<String> {
    let own = arg.get_env().map(|own| own.to_string_lossy().into_owned());
    match others(arg) {
        names if own.is_some() && !names.is_empty() => names.iter().map(ToString::to_string).collect(),
        _ => own.into_iter().collect(),
    }
}

fn others(arg: &Arg) -> &'static [&'static str] {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    let known = VARIABLES.iter().find(|(flag, _)| arg.get_long() == Some(flag) || aliases.contains(flag));
    known.map_or(&[], |(_, names)| names)
}

fn set_among(names: &'static [&'static str]) -> Option<&'static str> {
    names.iter().copied().find(|name| is_set(OsStr::new(name)))
}

/// Which GPUs shards may use. CUDA's own variable wins; that of the container's runtime may say what CUDA shows then.
pub fn visible_gpus() -> Option<String> {
    let set = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"].into_iter().find_map(var_os);
    set.map(|gpus| gpus.to_string_lossy().into_owned())
}

/// What is set though it changes nothing.
pub fn idle() -> Vec<Idle> {
    let asks = |name: &str| var_os(name).is_some_and(|value| !FALSE_WORDS.iter().any(|word| value == *word));
    IDLE.iter().filter(|(name, _)| asks(name)).map(|&(variable, why)| Idle { variable, why }).collect()
}

/// Flags with several variables, first the one that wins.
pub fn several() -> impl Iterator<Item = (&'static str, impl Iterator<Item = &'static str>)> {
    VARIABLES.iter().map(|(flag, names)| (*flag, names.iter().copied()))
}

/// All of [`IDLE`], for the reference.
pub fn known_idle() -> impl Iterator<Item = Idle> {
    IDLE.iter().map(|&(variable, why)| Idle { variable, why })
}

fn is_set(name: &OsStr) -> bool {
    var_os(name).is_some_and(|value| !value.is_empty())
}
