//! Traces: what they keep, what they hide, and that they catch a changed decision.

use super::world::{World, roomy};
use crate::trace::{Record, ReplayError, SegmentError, records, replay};
use crate::{Config, Request, Tokens};

fn recorded(config: Config) -> Vec<u8> {
    let mut world = World::new(config);
    world.next_segment();
    for length in 1..12 {
        world.submit(3 * length, 9);
    }
    world.drain();
    world.next_segment();
    world.segments.remove(0)
}

#[test]
fn a_recorded_run_replays() {
    let segment = recorded(roomy());
    let replayed = replay(&segment).expect("the same decisions");
    assert!(replayed.plans > 10 && replayed.records > 30, "{replayed:?}");
}

/// No decision may hang on tokens behind the last whole block: a trace has no number for them.
#[test]
fn equal_prompts_that_end_in_a_part_of_a_block_replay() {
    let mut world = World::new(roomy());
    world.next_segment();
    for _ in 0..3 {
        world.try_submit(Request::new(vec![7; 14], Tokens(1))).expect("it fits");
    }
    assert_eq!(world.step().expect("the first enters").admitted.len(), 1, "the others wait for its blocks");
    world.drain();
    world.next_segment();
    replay(&world.segments[0]).expect("the same decisions");
}

#[test]
fn a_segment_holds_no_token_ids() {
    let mut world = World::new(roomy());
    world.next_segment();
    let secret = 0x00de_adbe_u32;
    world.try_submit(Request::new(vec![secret; 13], Tokens(6))).expect("it fits");
    world.drain();
    world.next_segment();
    world.next_segment();
    assert!(!world.segments.is_empty());
    let written = postcard::to_allocvec(&secret).expect("a number");
    for segment in &world.segments {
        assert!(!segment.windows(written.len()).any(|bytes| bytes == written));
    }
}

#[test]
fn blocks_have_equal_numbers_exactly_when_their_tokens_are_equal() {
    let mut world = World::new(roomy());
    world.next_segment();
    for prompt in [vec![5, 5, 5, 5, 6, 6, 6, 6, 1], vec![6, 6, 6, 6, 5, 5, 5, 5], vec![5, 5, 5, 6]] {
        world.try_submit(Request::new(prompt, Tokens(1))).expect("it fits");
    }
    world.next_segment();
    let arrivals: Vec<Vec<u32>> = records(&world.segments[0])
        .expect("a segment")
        .into_iter()
        .filter_map(|record| match record {
            Record::Submitted { arrival, .. } => Some(arrival.blocks),
            _ => None,
        })
        .collect();
    assert_eq!(arrivals, [vec![0, 1], vec![1, 0], vec![2]]);
}

#[test]
fn a_changed_decision_is_found_and_named() {
    let segment = recorded(roomy());
    let mut all = records(&segment).expect("a segment");
    let mut changed = segment[..segment.len() - encoded(&all).len()].to_vec();
    let plan = all.iter_mut().find_map(|record| match record {
        Record::Planned { plan: Some(plan), .. } if !plan.decodes.is_empty() => Some(plan),
        _ => None,
    });
    plan.expect("somebody decodes").decodes[0].2 += 1;
    changed.extend(encoded(&all));
    match replay(&changed) {
        Err(ReplayError::Difference(difference)) => assert_ne!(difference.recorded, difference.now),
        other => panic!("{other:?}"),
    }
}

fn encoded(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    records.iter().for_each(|record| crate::trace::write(&mut bytes, record));
    bytes
}

#[test]
fn a_segment_that_was_cut_short_replays_as_far_as_it_goes() {
    let segment = recorded(roomy());
    let whole = replay(&segment).expect("the same decisions").records;
    let cut = replay(&segment[..segment.len() - 3]).expect("the same decisions").records;
    assert_eq!(cut, whole - 1);
}

#[test]
fn what_is_no_trace_is_refused() {
    assert_eq!(records(b"{\"at_ms\": 0}"), Err(SegmentError::NoTrace));
    assert!(matches!(replay(b"hrtrace4\x04\0"), Err(ReplayError::Segment(SegmentError::Header(_)))));
}
