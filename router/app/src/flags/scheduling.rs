//! Flags that choose how the scheduler decides. `serve`, `router` and `simulate` read them with this same code, so what
//! a simulation showed is what a server does.

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use headrace_scheduler::{AdmissionRule, Config, Micros, PolicyKind};

/// Who runs next, and what must fit before a request enters.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Scheduling")]
pub struct SchedulingFlags {
    /// Who is next among those that wait.
    #[arg(long, env, value_enum, value_name = "POLICY", default_value = "fcfs")]
    pub scheduling_policy: Policy,
    /// Requests of one group of `static`. More share each step, but all wait for the longest. Default and maximum:
    /// --max-batch-size.
    #[arg(long, env, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub group_size: Option<u32>,
    /// Milliseconds that `dynamic` collects requests for, from the first one's arrival, unless its batch is full before.
    /// Default: 50.
    #[arg(long, env, value_name = "MILLISECONDS", value_parser = milliseconds)]
    pub window_ms: Option<Micros>,
    /// Cut prompts into chunks so that a step with decode rows is predicted to take no longer than this many
    /// milliseconds. Lower keeps the gaps between tokens short, at the price of later first tokens. Default: chunks are
    /// limited by --max-batch-prefill-tokens only.
    #[arg(long, env, value_name = "MILLISECONDS", value_parser = positive_milliseconds)]
    pub target_itl_ms: Option<Micros>,
    /// Compute a prompt whole, in a step of its own that pauses those who decode, as Text Generation Inference does
    /// without chunking. Only a prompt longer than --max-batch-prefill-tokens is still cut.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub no_chunked_prefill: bool,
    /// Tokens that waiting requests may have to compute, all together; a request beyond that is answered 429. Lower
    /// refuses sooner, and bounds the wait of those who are taken. Default: no limit.
    #[arg(long, env, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_queue_tokens: Option<u64>,
    /// How many requests may overtake one that waits for KV blocks before nobody enters until it fits. 0 keeps the
    /// order strictly; more uses blocks that would idle meanwhile.
    #[arg(long, env, value_name = "REQUESTS", default_value_t = 8)]
    pub max_skips: u32,
    /// What must fit into the KV pool before a request enters.
    #[arg(long, env, value_enum, value_name = "RULE", default_value = "learned")]
    pub admission: Admission,
    /// Share of the KV pool that admission leaves free for rows that grow, 0 to 1, in steps of 0.001. More means fewer
    /// preemptions and fewer rows.
    #[arg(long, env, value_name = "SHARE", default_value = "0.03", value_parser = share)]
    pub watermark: Permille,
    /// Forget the KV of a request that ended, and compute equal beginnings of prompts each time.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub no_prefix_cache: bool,
}

/// The words of `--scheduling-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// First come, first served.
    Fcfs,
    /// Bands of priority, aged so that none starves.
    Priority,
    /// Each tenant its share of the computed tokens.
    Fair,
    /// The shortest prompt first, aged so that none starves.
    Shortest,
    /// For comparison: a group runs until its longest answer is done, then the next one starts.
    Static,
    /// For comparison: requests are collected for a window, then run to completion.
    Dynamic,
}

/// The words of `--admission`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Admission {
    /// The prompt, the watermark, and the most that all rows are expected to hold later, by what was learned of lengths.
    Learned,
    /// For comparison: the prompt and the watermark; growth is left to preemption.
    Watermark,
    /// For comparison: the prompt and all of max_new_tokens, as Text Generation Inference reserves them.
    Reserve,
}

/// A share in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permille(pub u32);

impl SchedulingFlags {
    /// Puts the choices onto a configuration whose sizes are settled already.
    pub fn apply(&self, config: &mut Config) {
        config.policy = self.policy(self.scheduling_policy, config.max_batch_size);
        config.target_itl = self.target_itl_ms;
        config.chunked_prefill = !self.no_chunked_prefill;
        config.max_queue_tokens = self.max_queue_tokens;
        config.max_skips = self.max_skips;
        config.admission = self.admission.into();
        config.watermark_permille = self.watermark.0;
        config.prefix_cache = !self.no_prefix_cache;
    }

    /// A policy with the size or window that the flags give it.
    pub fn policy(&self, policy: Policy, max_batch_size: u32) -> PolicyKind {
        match policy {
            Policy::Fcfs => PolicyKind::Fcfs,
            Policy::Priority => PolicyKind::Priority,
            Policy::Fair => PolicyKind::Fair,
            Policy::Shortest => PolicyKind::Shortest,
            Policy::Static => PolicyKind::Static {
                group_size: self.group_size.map_or(max_batch_size, |size| size.min(max_batch_size)),
            },
            Policy::Dynamic => PolicyKind::Dynamic { window: self.window_ms.unwrap_or(USUAL_WINDOW) },
        }
    }
}

impl From<Admission> for AdmissionRule {
    fn from(admission: Admission) -> Self {
        match admission {
            Admission::Learned => Self::Learned,
            Admission::Watermark => Self::Watermark,
            Admission::Reserve => Self::Reserve,
        }
    }
}

/// Of `dynamic`.
const USUAL_WINDOW: Micros = Micros(50_000);

/// Longer times are mistakes: an hour.
const LONGEST_MS: f64 = 3_600_000.0;

/// Milliseconds, fractions allowed: a GPU's steps take few of them.
pub fn milliseconds(text: &str) -> Result<Micros, String> {
    match text.parse::<f64>() {
        Ok(given) if (0.0..=LONGEST_MS).contains(&given) => Ok(Micros((given * 1000.0).round() as u64)),
        _ => Err(format!("not a number of milliseconds from 0 to {LONGEST_MS}")),
    }
}

/// [`milliseconds`], at least a microsecond.
pub fn positive_milliseconds(text: &str) -> Result<Micros, String> {
    match milliseconds(text)? {
        Micros(0) => Err("must be more than 0".to_owned()),
        time => Ok(time),
    }
}

fn share(text: &str) -> Result<Permille, String> {
    match text.parse::<f64>() {
        Ok(given) if (0.0..1.0).contains(&given) => Ok(Permille((given * 1000.0).round() as u32)),
        _ => Err("not a share from 0 to less than 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        flags: SchedulingFlags,
    }

    fn config(words: &str) -> Config {
        let words = std::iter::once("headrace").chain(words.split_whitespace());
        let mut config = Config { max_batch_size: 16, ..Config::default() };
        Words::try_parse_from(words).expect("good words").flags.apply(&mut config);
        config
    }

    #[test]
    fn without_words_the_configuration_is_the_schedulers_own() {
        assert_eq!(config(""), Config { max_batch_size: 16, ..Config::default() });
    }

    #[test]
    fn every_word_reaches_the_configuration() {
        let words = "--scheduling-policy dynamic --window-ms 2.5 --target-itl-ms 40 --no-chunked-prefill \
                     --max-queue-tokens 9000 --max-skips 3 --admission reserve --watermark 0.05 --no-prefix-cache";
        let expected = Config {
            max_batch_size: 16,
            policy: PolicyKind::Dynamic { window: Micros(2_500) },
            target_itl: Some(Micros(40_000)),
            chunked_prefill: false,
            max_queue_tokens: Some(9_000),
            max_skips: 3,
            admission: AdmissionRule::Reserve,
            watermark_permille: 50,
            prefix_cache: false,
            ..Config::default()
        };
        assert_eq!(config(words), expected);
    }

    #[test]
    fn a_window_has_its_usual_length_and_a_group_no_more_requests_than_rows() {
        assert_eq!(config("--scheduling-policy dynamic").policy, PolicyKind::Dynamic { window: Micros(50_000) });
        for (words, group_size) in [("", 16), ("--group-size 4", 4), ("--group-size 99", 16)] {
            let config = config(&format!("--scheduling-policy static {words}"));
            assert_eq!(config.policy, PolicyKind::Static { group_size });
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for words in ["--watermark 1", "--watermark 3%", "--target-itl-ms 0", "--window-ms -1", "--group-size 0"] {
            let words = std::iter::once("headrace").chain(words.split_whitespace());
            assert!(Words::try_parse_from(words).is_err());
        }
    }
}
