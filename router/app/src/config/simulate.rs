//! `headrace simulate`: what to simulate, on what, and what to show of it.

use std::path::PathBuf;

use headrace_scheduler::{Blocks, Config, Micros, Tokens};
use headrace_simulator::{CostModel, Limits, Preset, PresetKnobs, Rates};

use super::what_if::Changes;
use super::{Batching, ConfigError, checks};
use crate::flags::scheduling::Policy;
use crate::flags::simulate::{OutputFlags, PresetName, TraceFlags, TrafficFlags};
use crate::flags::{SchedulingFlags, SimulateFlags};

#[derive(Debug)]
pub struct SimulateConfig {
    pub traffic: Traffic,
    /// `None`: no flag says.
    pub cost: Option<Cost>,
    /// `None`: what the cost model says.
    pub router: Option<Micros>,
    pub knobs: Knobs,
    pub json: bool,
    pub timeline: Option<PathBuf>,
    pub show: Show,
}

#[derive(Debug)]
pub enum Traffic {
    File(PathBuf),
    Preset(Preset, PresetKnobs),
}

#[derive(Debug)]
pub enum Cost {
    Known(CostModel),
    File(PathBuf),
}

#[derive(Debug)]
pub enum Show {
    One,
    /// Policies side by side.
    Comparison(Vec<Policy>),
    Sweep(Rates, Limits),
    /// Of a trace, by its name or that of a segment.
    Replay(PathBuf),
    WhatIf {
        trace: PathBuf,
        changes: Changes,
    },
    Fit {
        trace: PathBuf,
        /// `None`: standard output.
        output: Option<PathBuf>,
    },
}

/// The server's flags that a simulation has too.
#[derive(Debug)]
pub struct Knobs {
    batching: Batching,
    scheduling: SchedulingFlags,
    block_size: Tokens,
    max_concurrent_requests: Option<u32>,
}

impl Knobs {
    /// The scheduler's configuration on a machine; `policy` instead of the flags' one, if there is one.
    ///
    /// # Errors
    ///
    /// The pool is too large or too small.
    pub fn scheduler(&self, cost: &CostModel, policy: Option<Policy>) -> Result<Config, ConfigError> {
        let blocks = self.batching.pool_tokens.unwrap_or(cost.pool).blocks(self.block_size);
        let pool = blocks.0.checked_mul(self.block_size.0).map(Tokens).ok_or(ConfigError::PoolTooLarge)?;
        let mut config = Config {
            block_size: self.block_size,
            total_blocks: Blocks(blocks.0),
            max_batch_size: self.batching.max_batch_size,
            max_batch_prefill_tokens: self.batching.max_batch_prefill_tokens.unwrap_or(cost.prefill).min(pool),
            max_total_tokens: pool,
            max_concurrent_requests: self.max_concurrent_requests,
            waiting_served_ratio_permille: self.batching.waiting_served_ratio_permille,
            max_waiting_tokens: self.batching.max_waiting_tokens,
            preempt_once_seed: self.batching.preempt_once_seed,
            ..Config::default()
        };
        self.scheduling.apply(&mut config);
        if let Some(policy) = policy {
            config.policy = self.scheduling.policy(policy, config.max_batch_size);
        }
        Ok(config)
    }
}

pub fn check(flags: SimulateFlags) -> Result<SimulateConfig, ConfigError> {
    checks::at_least_one("--block-size", Some(flags.machine.block_size))?;
    checks::at_least_one("--max-concurrent-requests", flags.max_concurrent_requests)?;
    checks::file_exists("--workload", flags.traffic.workload.as_deref())?;
    let chunked = !flags.scheduling.no_chunked_prefill;
    Ok(SimulateConfig {
        traffic: traffic(flags.traffic),
        cost: flags.machine.cost_model.map(cost).transpose()?,
        router: flags.machine.router_us.map(Micros),
        knobs: Knobs {
            batching: checks::batching(&flags.batching, None, chunked)?,
            scheduling: flags.scheduling,
            block_size: Tokens(flags.machine.block_size),
            max_concurrent_requests: flags.max_concurrent_requests,
        },
        json: flags.output.json,
        show: of_trace(flags.trace)?.unwrap_or_else(|| show(&flags.output)),
        timeline: flags.output.timeline,
    })
}

fn traffic(flags: TrafficFlags) -> Traffic {
    if let Some(file) = flags.workload {
        return Traffic::File(file);
    }
    let preset = match flags.preset.unwrap_or(PresetName::Seed) {
        PresetName::Seed => Preset::Seed,
        PresetName::Sharegpt => Preset::ShareGpt,
        PresetName::Bursty => Preset::Bursty,
        PresetName::Prefix => Preset::Prefix,
        PresetName::Adversary => Preset::Adversary,
    };
    let TrafficFlags { requests, rate, seed, max_new_ratio, .. } = flags;
    Traffic::Preset(preset, PresetKnobs { requests, rate, seed, max_new_ratio })
}

fn cost(name: String) -> Result<Cost, ConfigError> {
    if let Some(cost) = CostModel::named(&name) {
        return Ok(Cost::Known(cost));
    }
    let path = PathBuf::from(name);
    checks::file_exists("--cost-model", Some(&path))?;
    Ok(Cost::File(path))
}

fn of_trace(flags: TraceFlags) -> Result<Option<Show>, ConfigError> {
    let TraceFlags { replay, what_if, fit, fit_output } = flags;
    Ok(match (replay, fit) {
        (Some(trace), _) if what_if.is_empty() => Some(Show::Replay(trace)),
        (Some(trace), _) => Some(Show::WhatIf { trace, changes: Changes::parse(&what_if)? }),
        (None, Some(trace)) => Some(Show::Fit { trace, output: fit_output }),
        (None, None) => None,
    })
}

fn show(flags: &OutputFlags) -> Show {
    let ms = |limit: Option<Micros>| limit.map(|limit| limit.0 as f64 / 1000.0);
    match flags.sweep {
        Some(rates) => Show::Sweep(rates, Limits { ttft_ms: ms(flags.ttft_limit_ms), itl_ms: ms(flags.itl_limit_ms) }),
        None if flags.compare.is_empty() => Show::One,
        None => Show::Comparison(flags.compare.clone()),
    }
}
