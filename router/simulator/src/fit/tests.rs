use headrace_scheduler::Config;

use super::*;
use crate::presets::{Preset, PresetKnobs};
use crate::world::record;

fn fit(cost: &CostModel) -> Fit {
    let workload = Preset::Seed.workload(PresetKnobs { requests: 300, rate: 6.0, ..PresetKnobs::default() });
    let config = Config { max_batch_size: 32, ..Config::default() };
    let (_, segments) = record(&workload, &config, cost, 400).expect("never stuck");
    Fit::of(&Recording::read(&segments).expect("a recording")).expect("many steps")
}

fn within(percent: f64, found: f64, right: f64) -> bool {
    (found - right).abs() * 100.0 <= right * percent
}

#[test]
fn the_cost_model_of_a_recorded_run_is_found() {
    for cost in [CostModel::CPU_SMOLLM2, CostModel::A100_7B] {
        let found = fit(&cost);
        let (step, right) = (found.model.step, cost.step);
        for (found, right) in [
            (step.base, right.base),
            (step.per_token, right.per_token),
            (step.per_row, right.per_row),
            (step.per_context, right.per_context),
            (step.per_pair, right.per_pair),
        ] {
            assert!(within(2.0, found, right), "{step:?}, not {:?}", cost.step);
        }
        assert!(found.quality.p99_error_percent < 1.0, "{:?}", found.quality);
        assert_eq!(found.quality.outliers, 0);
    }
}

#[test]
fn how_router_and_shard_take_turns_is_found() {
    let cost = CostModel { router: Micros(700), lead: Some(Micros(2_500)), gap: Micros(150), ..CostModel::CPU_SMOLLM2 };
    let model = fit(&cost).model;
    assert_eq!((model.router, model.lead, model.gap), (cost.router, cost.lead, cost.gap));
    assert_eq!((model.pool, model.prefill), (Tokens(32 * 1024), Tokens(512)));
}

#[test]
fn a_few_steps_that_were_disturbed_change_little() {
    let workload = Preset::Seed.workload(PresetKnobs::default());
    let cost = CostModel::A100_7B;
    let (_, segments) = record(&workload, &Config::default(), &cost, u64::MAX).expect("never stuck");
    let mut recording = Recording::read(&segments).expect("a recording");
    recording.steps.iter_mut().step_by(100).for_each(|step| step.took = Micros(step.took.0 * 20));
    let fit = Fit::of(&recording).expect("many steps");
    assert_eq!(fit.quality.outliers, recording.steps.len().div_ceil(100));
    assert!(within(2.0, fit.model.step.base, cost.step.base), "{fit:?}");
}

#[test]
fn a_trace_of_a_few_steps_is_refused() {
    let workload = Preset::Seed.workload(PresetKnobs { requests: 1, ..PresetKnobs::default() });
    let (_, segments) = record(&workload, &Config::default(), &CostModel::UNIT, 5).expect("never stuck");
    let recording = Recording::read(&segments[..1]).expect("a recording");
    assert_eq!(Fit::of(&recording), Err(NothingToFit { steps: 5 }));
}
