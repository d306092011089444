//! Switches that other servers name the other way round: `--no-prefix-cache` is vLLM's `--no-enable-prefix-caching` and
//! Text Generation Inference's `PREFIX_CACHING=0`.

use clap::Args;
use clap::builder::BoolishValueParser;

use super::Origins;

#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduling")]
pub struct OppositeFlags {
    /// Keep the KV of requests that ended, for those that begin alike: so it is unless --no-prefix-cache.
    #[arg(long, env = "PREFIX_CACHING", value_name = "BOOL", hide_short_help = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub enable_prefix_caching: Option<bool>,
    /// vLLM's --no-prefix-cache.
    #[arg(long, hide_short_help = true)]
    pub no_enable_prefix_caching: bool,
    /// Cut long prompts into chunks: so it is unless --no-chunked-prefill.
    #[arg(long, env = "PREFILL_CHUNKING", value_name = "BOOL", hide_short_help = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub enable_chunked_prefill: Option<bool>,
    /// vLLM's --no-chunked-prefill.
    #[arg(long, hide_short_help = true)]
    pub no_enable_chunked_prefill: bool,
}

/// Two flags that ask for the opposite of each other, each without its dashes.
#[derive(Debug, PartialEq, Eq)]
pub struct Opposed(pub &'static str, pub &'static str);

impl OppositeFlags {
    /// Whether the prefix cache is off; `off` is what `--no-prefix-cache` says.
    pub fn no_prefix_cache(&self, off: bool, origins: &Origins) -> Result<bool, Opposed> {
        let wishes = [
            ("no-prefix-cache", off.then_some(true)),
            ("no-enable-prefix-caching", self.no_enable_prefix_caching.then_some(true)),
            ("enable-prefix-caching", self.enable_prefix_caching.map(|on| !on)),
        ];
        settle(wishes, origins)
    }

    /// Whether prompts are computed whole; `whole` is what `--no-chunked-prefill` says.
    pub fn no_chunked_prefill(&self, whole: bool, origins: &Origins) -> Result<bool, Opposed> {
        let wishes = [
            ("no-chunked-prefill", whole.then_some(true)),
            ("no-enable-chunked-prefill", self.no_enable_chunked_prefill.then_some(true)),
            ("enable-chunked-prefill", self.enable_chunked_prefill.map(|on| !on)),
        ];
        settle(wishes, origins)
    }
}

/// What was typed wins over what variables say; two of a kind must agree.
fn settle(wishes: [(&'static str, Option<bool>); 3], origins: &Origins) -> Result<bool, Opposed> {
    let wishes = wishes.iter().filter_map(|&(flag, wish)| Some((flag, wish?)));
    let (typed, set): (Vec<_>, Vec<_>) = wishes.partition(|(flag, _)| origins.is_typed(flag));
    let decisive = if typed.is_empty() { set } else { typed };
    let Some(&(first, off)) = decisive.first() else { return Ok(false) };
    match decisive.iter().find(|(_, other)| *other != off) {
        Some(&(other, _)) => Err(Opposed(first, other)),
        None => Ok(off),
    }
}
