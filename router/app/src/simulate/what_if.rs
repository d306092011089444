//! `--what-if`: a trace's requests under other knobs, with steps that cost what they did.

use std::path::Path;

use headrace_simulator::{Fit, Prediction, simulate};
use serde_json::json;

use super::{SimulateError, cost_model_or, draw, segments, title, traces};
use crate::config::{Changes, SimulateConfig};

pub fn run(config: &SimulateConfig, trace: &Path, changes: &Changes) -> Result<String, SimulateError> {
    let recording = segments::recording(trace)?;
    let mut steps = "from --cost-model".to_owned();
    let cost = cost_model_or(config, || {
        let fit = Fit::of(&recording).map_err(|reason| SimulateError::Fit { path: trace.to_owned(), reason })?;
        steps = traces::summary(&fit);
        Ok(fit.model)
    })?;
    let knobs = changes.apply(&recording.config)?;
    let run = simulate(&recording.workload(), &knobs, &cost)?;
    draw(config, &[(title(&run), &run)])?;
    let prediction = Prediction::of(&recording, &run);
    Ok(if config.json {
        format!("{}\n", json!({ "knobs": changes.to_string(), "steps": steps, "prediction": prediction.json() }))
    } else {
        format!("knobs: {changes}\nsteps: {steps}\n{prediction}")
    })
}
