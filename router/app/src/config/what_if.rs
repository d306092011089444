//! `--what-if KNOB=VALUE`: a recorded configuration with some knobs turned. Values are read by the flags' own code.

use std::fmt;

use clap::{Args, Command, FromArgMatches};
use headrace_scheduler::{Blocks, Config, PolicyKind, Tokens};

use super::{ConfigError, checks};
use crate::flags::scheduling::Policy;
use crate::flags::{BatchingFlags, SchedulingFlags};

/// Knobs to turn; none: everything as recorded.
#[derive(Debug)]
pub struct Changes {
    /// As they were given, `=` and all.
    given: Vec<String>,
    /// Names, and whether a limit is taken away.
    knobs: Vec<(String, bool)>,
    flags: KnobFlags,
}

/// What may be turned: the flags of a simulation that are the server's too.
#[derive(Debug, Args)]
struct KnobFlags {
    #[command(flatten)]
    batching: BatchingFlags,
    #[command(flatten)]
    scheduling: SchedulingFlags,
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    block_size: Option<u32>,
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    max_concurrent_requests: Option<u32>,
}

/// Limits that need not be.
const MAY_BE_NONE: [&str; 3] = ["target-itl-ms", "max-queue-tokens", "max-concurrent-requests"];

impl Changes {
    /// # Errors
    ///
    /// A knob is unknown, or its value is none of it.
    pub fn parse(given: &[String]) -> Result<Self, ConfigError> {
        let given: Vec<String> = given.iter().filter(|change| *change != "none").cloned().collect();
        let (mut knobs, mut words) = (Vec::new(), Vec::new());
        for change in &given {
            let wrong = |reason: &str| ConfigError::WhatIf { given: change.clone(), reason: reason.to_owned() };
            let (name, value) = change.split_once('=').ok_or_else(|| wrong("write KNOB=VALUE, or none"))?;
            let none = value == "none";
            match value {
                "none" if !MAY_BE_NONE.contains(&name) => return Err(wrong("this knob always has a value")),
                "none" => {}
                "true" if name.starts_with("no-") => words.push(format!("--{name}")),
                "false" if name.starts_with("no-") => {}
                _ => words.push(format!("--{name}={value}")),
            }
            knobs.push((name.to_owned(), none));
        }
        let flags = parse(&words).map_err(|reason| ConfigError::WhatIf { given: given.join(" "), reason })?;
        let changes = Self { given, knobs, flags };
        changes.apply(&Config::default())?;
        Ok(changes)
    }

    /// The recorded configuration, with the knobs turned.
    ///
    /// # Errors
    ///
    /// What comes out contradicts itself.
    pub fn apply(&self, recorded: &Config) -> Result<Config, ConfigError> {
        let mut config = recorded.clone();
        for (name, none) in &self.knobs {
            self.turn(name, *none, &mut config)?;
        }
        self.policy(&mut config);
        self.pool(recorded, &mut config)?;
        if config.target_itl.is_some() && !config.chunked_prefill {
            return Err(ConfigError::TargetWithoutChunks);
        }
        Ok(config)
    }

    /// Knobs that depend on no other.
    fn turn(&self, name: &str, none: bool, config: &mut Config) -> Result<(), ConfigError> {
        let KnobFlags { batching, scheduling, max_concurrent_requests, .. } = &self.flags;
        let checked = checks::batching(batching, None, !scheduling.no_chunked_prefill)?;
        let mut chosen = config.clone();
        scheduling.apply(&mut chosen);
        match name {
            "max-batch-size" => config.max_batch_size = checked.max_batch_size,
            "waiting-served-ratio" | "max-waiting-tokens" => {
                config.waiting_served_ratio_permille = checked.waiting_served_ratio_permille;
                config.max_waiting_tokens = checked.max_waiting_tokens;
            }
            "no-chunked-prefill" => {
                config.chunked_prefill = chosen.chunked_prefill;
                config.waiting_served_ratio_permille = checked.waiting_served_ratio_permille;
                config.max_waiting_tokens = checked.max_waiting_tokens;
            }
            "target-itl-ms" => config.target_itl = chosen.target_itl.filter(|_| !none),
            "max-queue-tokens" => config.max_queue_tokens = chosen.max_queue_tokens.filter(|_| !none),
            "max-concurrent-requests" => config.max_concurrent_requests = max_concurrent_requests.filter(|_| !none),
            "max-skips" => config.max_skips = chosen.max_skips,
            "admission" => config.admission = chosen.admission,
            "watermark" => config.watermark_permille = chosen.watermark_permille,
            "no-prefix-cache" => config.prefix_cache = chosen.prefix_cache,
            "scheduling-policy" | "group-size" | "window-ms" => {}
            "max-batch-prefill-tokens" | "max-batch-total-tokens" | "block-size" => {}
            _ => {
                let reason = "this is no knob of a recorded run".to_owned();
                return Err(ConfigError::WhatIf { given: name.to_owned(), reason });
            }
        }
        Ok(())
    }

    fn policy(&self, config: &mut Config) {
        let scheduling = &self.flags.scheduling;
        let named = match config.policy {
            _ if self.turns("scheduling-policy") => Some(scheduling.scheduling_policy),
            PolicyKind::Static { .. } if self.turns("group-size") => Some(Policy::Static),
            PolicyKind::Dynamic { .. } if self.turns("window-ms") => Some(Policy::Dynamic),
            _ => None,
        };
        if let Some(policy) = named {
            config.policy = scheduling.policy(policy, config.max_batch_size);
        }
        if let PolicyKind::Static { group_size } = &mut config.policy {
            *group_size = config.max_batch_size.min(*group_size);
        }
    }

    /// Sizes that hang together: blocks of another size make a pool of as many tokens.
    fn pool(&self, recorded: &Config, config: &mut Config) -> Result<(), ConfigError> {
        let KnobFlags { batching, block_size, .. } = &self.flags;
        let tokens = |blocks: Blocks| Tokens(blocks.0.saturating_mul(recorded.block_size.0));
        let asked = batching.max_batch_total_tokens.filter(|_| self.turns("max-batch-total-tokens"));
        config.block_size = block_size.map_or(recorded.block_size, Tokens);
        config.total_blocks = asked.map_or_else(|| tokens(recorded.total_blocks), Tokens).blocks(config.block_size);
        config.host_blocks = Blocks(tokens(recorded.host_blocks).0 / config.block_size.0);
        config.swap_time.0 = recorded.swap_time.0 * u64::from(config.block_size.0) / u64::from(recorded.block_size.0);
        let pool = config.total_blocks.0.checked_mul(config.block_size.0).ok_or(ConfigError::PoolTooLarge)?;
        let prefill = batching.max_batch_prefill_tokens.filter(|_| self.turns("max-batch-prefill-tokens"));
        config.max_batch_prefill_tokens = prefill.map_or(recorded.max_batch_prefill_tokens, Tokens).min(Tokens(pool));
        config.max_total_tokens = recorded.max_total_tokens.min(Tokens(pool));
        Ok(())
    }

    fn turns(&self, knob: &str) -> bool {
        self.knobs.iter().any(|(name, _)| name == knob)
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.given.is_empty() { f.write_str("as recorded") } else { f.write_str(&self.given.join(", ")) }
    }
}

/// Without the environment: what it says of a server is no change of a recorded one.
fn parse(words: &[String]) -> Result<KnobFlags, String> {
    let command = KnobFlags::augment_args(Command::new("what-if")).no_binary_name(true);
    let command = command.mut_args(|arg| arg.env(None::<&str>));
    let first_line = |error: clap::Error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    };
    let matches = command.try_get_matches_from(words).map_err(first_line)?;
    KnobFlags::from_arg_matches(&matches).map_err(first_line)
}

#[cfg(test)]
mod tests {
    use headrace_scheduler::{AdmissionRule, Micros};

    use super::*;

    fn recorded() -> Config {
        Config {
            max_batch_size: 16,
            max_total_tokens: Tokens(4096),
            max_queue_tokens: Some(5_000),
            admission: AdmissionRule::Watermark,
            policy: PolicyKind::Static { group_size: 16 },
            ..Config::default()
        }
    }

    fn changed(words: &str) -> Result<Config, ConfigError> {
        let given: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Changes::parse(&given)?.apply(&recorded())
    }

    #[test]
    fn none_changes_nothing() {
        assert_eq!(changed("none"), Ok(recorded()));
    }

    #[test]
    fn only_the_knobs_that_are_named_are_turned() {
        for (words, expected) in [
            (
                "max-batch-size=8",
                Config { max_batch_size: 8, policy: PolicyKind::Static { group_size: 8 }, ..recorded() },
            ),
            ("scheduling-policy=fair", Config { policy: PolicyKind::Fair, ..recorded() }),
            ("group-size=4", Config { policy: PolicyKind::Static { group_size: 4 }, ..recorded() }),
            ("target-itl-ms=40", Config { target_itl: Some(Micros(40_000)), ..recorded() }),
            ("max-queue-tokens=none", Config { max_queue_tokens: None, ..recorded() }),
            ("no-prefix-cache=true", Config { prefix_cache: false, ..recorded() }),
            ("admission=learned", Config { admission: AdmissionRule::Learned, ..recorded() }),
            ("watermark=0.1 max-skips=0", Config { watermark_permille: 100, max_skips: 0, ..recorded() }),
            ("block-size=16", Config { block_size: Tokens(16), total_blocks: Blocks(2048), ..recorded() }),
            (
                "max-batch-total-tokens=1000",
                Config { total_blocks: Blocks(32), max_total_tokens: Tokens(1024), ..recorded() },
            ),
            (
                "no-chunked-prefill=true",
                Config {
                    chunked_prefill: false,
                    waiting_served_ratio_permille: 300,
                    max_waiting_tokens: 20,
                    ..recorded()
                },
            ),
        ] {
            assert_eq!(changed(words), Ok(expected), "{words}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for words in [
            "max-batch-size",
            "max-batch-size=0",
            "max-batch-size=none",
            "rate=3",
            "scheduling-policy=best",
            "target-itl-ms=40 no-chunked-prefill=true",
        ] {
            assert!(changed(words).is_err(), "{words}");
        }
    }
}
