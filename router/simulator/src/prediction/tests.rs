use headrace_scheduler::Config;

use super::*;
use crate::cost_model::CostModel;
use crate::presets::{Preset, PresetKnobs};
use crate::world::{record, simulate};

const COST: CostModel = CostModel { router: Micros(700), gap: Micros(120), ..CostModel::CPU_SMOLLM2 };

fn config() -> Config {
    Config { max_batch_size: 16, ..Config::default() }
}

/// Mixed lengths and shared beginnings, some clients that leave, and some that allow more than they get.
fn traffic() -> Workload {
    let of = |preset: Preset, rate| preset.workload(PresetKnobs { requests: 150, rate, ..PresetKnobs::default() });
    let (seed, prefix) = (of(Preset::Seed, 1.5), of(Preset::Prefix, 1.5));
    let mut arrivals = [seed.arrivals(), prefix.arrivals()].concat();
    for (number, arrival) in arrivals.iter_mut().enumerate() {
        arrival.leaves = (number % 10 == 3).then_some(Micros(2_000_000));
        arrival.max_new = Tokens(arrival.output.0 * (1 + number as u32 % 3));
    }
    Workload::new(arrivals)
}

fn recorded(config: &Config) -> Recording {
    in_segments(&traffic(), config, u64::MAX)
}

fn in_segments(workload: &Workload, config: &Config, steps: u64) -> Recording {
    let (_, segments) = record(workload, config, &COST, steps).expect("never stuck");
    Recording::read(&segments).expect("a recording")
}

fn predict(recording: &Recording, config: &Config) -> Prediction {
    Prediction::of(recording, &simulate(&recording.workload(), config, &COST).expect("never stuck"))
}

#[track_caller]
fn assert_close(prediction: &Prediction, percent: f64) {
    for (name, recorded, predicted) in prediction.lines() {
        let off = difference(recorded, predicted).expect("both are there");
        assert!(off.abs() <= percent, "{name}: {recorded:?}, predicted {predicted:?}");
    }
}

#[test]
fn the_same_knobs_on_the_same_machine_give_the_same_latencies() {
    let recording = recorded(&config());
    let prediction = predict(&recording, &recording.config);
    assert_close(&prediction, 1.0);
    assert_eq!(prediction.requests, 300);
    assert!(prediction.predicted.prefix_hit_tokens > 10_000, "what was shared is shared again: {prediction:?}");
}

#[test]
fn many_segments_are_one_run() {
    let seed = Preset::Seed.workload(PresetKnobs { rate: 2.0, ..PresetKnobs::default() });
    let recording = in_segments(&seed, &config(), 200);
    assert_close(&predict(&recording, &recording.config), 1.0);
}

#[test]
fn other_knobs_give_what_they_would_have_given() {
    let recording = recorded(&config());
    let eight = Config { max_batch_size: 8, ..recording.config.clone() };
    let really = recorded(&Config { max_batch_size: 8, ..config() });
    let predicted = predict(&recording, &eight).predicted.latencies;
    let mean = |latencies: &Latencies| latencies.e2e_ms.mean.expect("answers");
    let (was, is, guess) = (mean(&recording.latencies()), mean(&really.latencies()), mean(&predicted));
    assert!(is > was * 1.2, "eight rows make a difference: {was} {is}");
    assert!((guess / is - 1.0).abs() < 0.1, "{guess}, not {is}");
}

#[test]
fn a_refused_request_has_the_mean_length_and_may_be_served_under_other_knobs() {
    let narrow = Config { max_concurrent_requests: Some(4), ..config() };
    let recording = recorded(&narrow);
    let refused = recording.requests.iter().filter(|request| !request.taken).count();
    assert!(refused > 20, "{refused}");
    assert!(predict(&recording, &recording.config).predicted.rejected > 0);
    let open = Config { max_concurrent_requests: None, ..recording.config.clone() };
    assert_eq!(predict(&recording, &open).predicted.rejected, 0);
}
