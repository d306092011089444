//! `headrace simulate`: the scheduler against a cost model, in figures or as a picture on standard output.

mod segments;
mod traces;
mod what_if;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use headrace_scheduler::trace::ReplayError;
use headrace_simulator::{
    CostModel, CostModelError, JsonlError, Limits, NothingToFit, Preset, PresetKnobs, Rates, RecordingError, Report,
    Run, Stuck, Sweep, Workload, comparison, read_jsonl, simulate, timeline,
};

use crate::config::{ConfigError, Cost, Show, SimulateConfig, Traffic};
use crate::failure::Failure;
use crate::flags::scheduling::Policy;

#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("--workload {}: {reason}", path.display())]
    Workload { path: PathBuf, reason: JsonlError },
    #[error("--cost-model {}: {reason}", path.display())]
    CostModel { path: PathBuf, reason: CostModelError },
    #[error("cannot read {}: {reason}", path.display())]
    Read { path: PathBuf, reason: io::Error },
    #[error("cannot write {}: {reason}", path.display())]
    Write { path: PathBuf, reason: io::Error },
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    #[error("--sweep needs a --preset: a file's requests come when it says")]
    SweepOfFile,
    #[error("{}: no trace of that name, and no segment {}.000001 or later", path.display(), path.display())]
    NoTrace { path: PathBuf },
    #[error("{}: {reason}", path.display())]
    Trace { path: PathBuf, reason: RecordingError },
    #[error("{}: {reason}", path.display())]
    Fit { path: PathBuf, reason: NothingToFit },
    /// What was found is part of the output.
    #[error("{}: {reason}", path.display())]
    Replay { path: PathBuf, reason: ReplayError },
    #[error(transparent)]
    Stuck(#[from] Stuck),
}

/// Runs the command.
pub fn run(config: &SimulateConfig) -> Result<(), Failure> {
    let Outcome { text, failure } = outcome(config)?;
    print(&text)?;
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// To standard output.
fn print(text: &str) -> Result<(), SimulateError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads may stop early, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(SimulateError::Output(error)),
        _ => Ok(()),
    }
}

/// What standard output gets, and why the command fails all the same.
struct Outcome {
    text: String,
    failure: Option<SimulateError>,
}

fn outcome(config: &SimulateConfig) -> Result<Outcome, SimulateError> {
    let cost = cost_model(config)?;
    let text = match &config.show {
        Show::One => one(config, &cost),
        Show::Comparison(policies) => compare(config, &cost, policies),
        Show::Sweep(rates, limits) => sweep(config, &cost, *rates, *limits),
        Show::Replay(trace) => return traces::replay(trace, config.json),
        Show::WhatIf { trace, changes } => what_if::run(config, trace, changes),
        Show::Fit { trace, output } => traces::fit(trace, output.as_deref(), config.json),
    };
    Ok(Outcome { text: text?, failure: None })
}

fn one(config: &SimulateConfig, cost: &CostModel) -> Result<String, SimulateError> {
    let scheduler = config.knobs.scheduler(cost, None)?;
    let run = simulate(&workload(&config.traffic)?, &scheduler, cost)?;
    draw(config, &[(title(&run), &run)])?;
    let report = Report::of(&run);
    Ok(if config.json { report.json() + "\n" } else { report.to_string() })
}

fn compare(config: &SimulateConfig, cost: &CostModel, policies: &[Policy]) -> Result<String, SimulateError> {
    let workload = workload(&config.traffic)?;
    let runs = policies.iter().map(|&policy| {
        let scheduler = config.knobs.scheduler(cost, Some(policy))?;
        Ok((name(policy), simulate(&workload, &scheduler, cost)?))
    });
    let runs = runs.collect::<Result<Vec<(String, Run)>, SimulateError>>()?;
    let titled: Vec<_> = runs.iter().map(|(name, run)| (format!("{name}: {}", title(run)), run)).collect();
    draw(config, &titled)?;
    let reports: Vec<_> = runs.iter().map(|(name, run)| (name.clone(), Report::of(run))).collect();
    if !config.json {
        return Ok(comparison(&reports));
    }
    let fields: Vec<_> = reports.iter().map(|(name, report)| format!("\"{name}\":{}", report.json())).collect();
    Ok(format!("{{{}}}\n", fields.join(",")))
}

fn sweep(config: &SimulateConfig, cost: &CostModel, rates: Rates, limits: Limits) -> Result<String, SimulateError> {
    let (preset, knobs): (Preset, PresetKnobs) = match config.traffic {
        Traffic::Preset(preset, knobs) => (preset, knobs),
        Traffic::File(_) => return Err(SimulateError::SweepOfFile),
    };
    let scheduler = config.knobs.scheduler(cost, None)?;
    let sweep = Sweep::run(rates, limits, |rate| {
        let workload = preset.workload(PresetKnobs { rate, ..knobs });
        simulate(&workload, &scheduler, cost).map(|run| Report::of(&run))
    })?;
    Ok(if config.json { sweep.json() + "\n" } else { sweep.to_string() })
}

fn workload(traffic: &Traffic) -> Result<Workload, SimulateError> {
    match traffic {
        Traffic::Preset(preset, knobs) => Ok(preset.workload(*knobs)),
        Traffic::File(path) => {
            read_jsonl(&read(path)?).map_err(|reason| SimulateError::Workload { path: path.clone(), reason })
        }
    }
}

fn cost_model(config: &SimulateConfig) -> Result<CostModel, SimulateError> {
    cost_model_or(config, || Ok(CostModel::UNIT))
}

/// What the flags say of the machine; `otherwise` where they name none.
fn cost_model_or(
    config: &SimulateConfig,
    otherwise: impl FnOnce() -> Result<CostModel, SimulateError>,
) -> Result<CostModel, SimulateError> {
    let mut cost = match &config.cost {
        None => otherwise()?,
        Some(Cost::Known(cost)) => *cost,
        Some(Cost::File(path)) => CostModel::from_toml(&read(path)?)
            .map_err(|reason| SimulateError::CostModel { path: path.clone(), reason })?,
    };
    if let Some(router) = config.router {
        (cost.router, cost.lead) = (router, None);
    }
    Ok(cost)
}

fn read(path: &Path) -> Result<String, SimulateError> {
    fs::read_to_string(path).map_err(|reason| SimulateError::Read { path: path.to_owned(), reason })
}

fn draw(config: &SimulateConfig, runs: &[(String, &Run)]) -> Result<(), SimulateError> {
    let Some(path) = &config.timeline else { return Ok(()) };
    fs::write(path, timeline(runs)).map_err(|reason| SimulateError::Write { path: path.clone(), reason })
}

fn title(run: &Run) -> String {
    let report = Report::of(run);
    format!("{} steps, {:.0} % of rows busy", report.steps, report.busy_row_fraction * 100.0)
}

fn name(policy: Policy) -> String {
    policy.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
