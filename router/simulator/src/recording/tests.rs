use std::collections::BTreeSet;

use headrace_scheduler::Tokens;
use headrace_scheduler::trace::replay;

use super::*;
use crate::cost_model::CostModel;
use crate::presets::{Preset, PresetKnobs};
use crate::run::Run;
use crate::workload::{self, Workload};
use crate::world::record;

fn recorded(segment_steps: u64) -> (Run, Vec<Vec<u8>>) {
    let mut arrivals = Preset::Prefix.workload(PresetKnobs::default()).arrivals().to_vec();
    // Some clients lose patience, and some allow more than they get.
    for (number, arrival) in arrivals.iter_mut().enumerate() {
        arrival.leaves = (number % 7 == 3).then_some(Micros(300_000));
        arrival.max_new = Tokens(arrival.output.0 * (1 + number as u32 % 3));
    }
    let config = Config { max_batch_size: 16, ..Config::default() };
    record(&Workload::new(arrivals), &config, &CostModel::A100_7B, segment_steps).expect("never stuck")
}

#[test]
fn a_recording_tells_the_moment_of_every_token() {
    for segment_steps in [u64::MAX, 37] {
        let (run, segments) = recorded(segment_steps);
        let recording = Recording::read(&segments).expect("a recording");
        assert_eq!((recording.requests.len(), recording.left_out), (run.requests.len(), 0));
        for (read, right) in recording.requests.iter().zip(&run.requests) {
            assert_eq!((read.at, read.planned, &read.tokens), (right.arrived, right.planned, &right.tokens));
            let (_, ended) = right.ending.expect("everybody ends");
            let end = if read.end == Some(End::Itself) { read.tokens.last().copied() } else { Some(ended) };
            assert_eq!(end, Some(ended), "{read:?}");
        }
        assert_eq!(recording.steps.len() as u64, run.steps);
        assert_eq!((recording.began, recording.ended), (run.began, recording.steps.last().expect("steps").landed));
    }
}

#[test]
fn segments_of_a_simulation_replay() {
    let (run, segments) = recorded(37);
    assert!(segments.len() > 5);
    let plans = segments.iter().map(|segment| replay(segment).expect("the same decisions").plans);
    assert_eq!(plans.sum::<u64>(), run.steps);
}

#[test]
fn requests_that_came_before_the_first_segment_are_left_out() {
    let (run, segments) = recorded(37);
    let recording = Recording::read(&segments[2..]).expect("a recording");
    assert!(recording.left_out > 0);
    assert!(recording.requests.len() + recording.left_out < run.requests.len());
}

#[test]
fn segments_with_a_gap_between_them_are_no_recording() {
    let (_, segments) = recorded(37);
    let gap = Recording::read(&[segments[0].clone(), segments[3].clone()]);
    assert!(matches!(gap, Err(RecordingError::Gap { segment: 2, .. })), "{gap:?}");
    assert_eq!(Recording::read(&[]).map(|_| ()), Err(RecordingError::Empty));
}

#[test]
fn contents_are_equal_where_prompts_were() {
    let (_, segments) = recorded(u64::MAX);
    let recording = Recording::read(&segments).expect("a recording");
    let first_blocks = recording.requests.iter().map(|request| request.blocks[&0]);
    let numbers: BTreeSet<u64> = first_blocks.collect();
    let workload = Preset::Prefix.workload(PresetKnobs::default());
    let names = workload.arrivals().iter().filter_map(|arrival| arrival.prefix.as_ref().map(|prefix| &prefix.name));
    assert_eq!(numbers.len(), names.collect::<BTreeSet<_>>().len());
}

#[test]
fn what_was_cut_off_is_counted() {
    let lone = workload::Arrival::new(Micros(0), Tokens(5), Tokens(3));
    let (_, segments) =
        record(&Workload::new(vec![lone]), &Config::default(), &CostModel::UNIT, 9).expect("never stuck");
    assert_eq!(unread_bytes(&segments[0]), 0);
    let shorter = &segments[0][..segments[0].len() - 1];
    assert!(unread_bytes(shorter) > 0);
}
