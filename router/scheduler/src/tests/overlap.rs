//! Two steps in flight: plans are made before the newest tokens are known.

use super::shard::EOS_AT;
use super::world::{World, roomy, with_blocks};
use crate::{Blocks, Config, FinishReason, Request, Row, Tokens};

#[test]
fn a_third_step_is_not_planned_while_two_are_in_flight() {
    let mut world = World::new(roomy());
    world.submit(4, 10);
    assert!(world.plan().is_some());
    assert!(world.plan().is_some());
    world.submit(4, 10);
    assert_eq!(world.plan(), None);
    world.land();
    assert!(world.plan().is_some());
}

#[test]
fn a_row_decodes_before_its_last_token_is_known() {
    let mut world = World::new(roomy());
    world.submit(4, 10);
    world.plan();
    let plan = world.plan().expect("the sample stays in the shard's memory");
    assert_eq!(plan.decodes[0].position, Tokens(4));
}

#[test]
fn a_finish_by_length_is_never_planned_beyond() {
    let mut world = World::new(roomy());
    let id = world.submit(4, 3);
    assert_eq!(world.samples_until_finished(id), 3);
}

#[test]
fn a_finish_by_end_of_sequence_wastes_one_row_of_one_step() {
    let mut world = World::new(roomy());
    let prompt = vec![EOS_AT + 2, 5];
    let id = world.try_submit(Request::new(prompt, Tokens(20))).expect("it fits");
    let samples = world.samples_until_finished(id);
    world.land();
    assert_eq!((world.stories[&id].answer.len(), samples), (3, 4));
    world.plan();
    world.check_all_is_back();
}

#[test]
fn a_row_whose_last_token_is_on_its_way_is_given_away_in_a_new_epoch() {
    let mut world = World::new(Config { max_batch_size: 1, ..roomy() });
    world.submit(4, 1);
    let next = world.submit(4, 1);
    let first = world.plan().expect("the first runs");
    let second = world.plan().expect("its row is free already");
    assert_eq!((second.admitted[0].request, second.admitted[0].row), (next, Row(0)));
    assert!(second.admitted[0].epoch > first.admitted[0].epoch);
    assert_eq!(world.scheduler.stats().ending, 1);
    world.drain();
    world.check_all_is_back();
}

#[test]
fn blocks_of_a_row_that_ends_are_free_when_its_last_step_lands_and_not_before() {
    let mut world = World::new(with_blocks(2));
    world.submit(7, 1);
    let next = world.submit(7, 1);
    world.plan();
    assert_eq!(world.plan(), None, "both blocks are leaving");
    let blocks = world.scheduler.stats().blocks;
    assert_eq!((blocks.free, blocks.leaving), (Blocks(0), Blocks(2)));
    world.land();
    assert_eq!(world.plan().expect("they are free").admitted[0].request, next);
}

#[test]
fn blocks_are_kept_for_the_later_of_two_steps_in_flight() {
    let mut world = World::new(roomy());
    let id = world.submit(4, 10);
    world.plan();
    world.plan();
    world.cancel(id);
    world.land();
    assert_eq!(world.scheduler.stats().blocks.leaving, Blocks(2));
    world.land();
    assert_eq!(world.scheduler.stats().blocks.free, Blocks(64));
}

#[test]
fn a_decode_row_waits_for_a_block_that_is_leaving() {
    let mut world = World::new(with_blocks(3));
    let long = world.submit(4, 8);
    let short = world.submit(8, 1);
    world.plan(); // three blocks are taken, two of them by a row that ends with this step
    assert_eq!(world.plan(), None, "the only decode row needs a block");
    world.land();
    assert_eq!(world.stories[&short].finished, Some(FinishReason::Length));
    assert_eq!(world.plan().expect("a block is free").decodes[0].request, long);
}

#[test]
fn nobody_is_preempted_or_held_up_for_a_block_that_is_leaving() {
    let mut world = World::new(with_blocks(4));
    let blocked = world.submit(4, 8);
    let free = world.submit(3, 4);
    world.submit(8, 1);
    world.plan(); // four blocks are taken, two of them by a row that ends with this step
    let plan = world.plan().expect("one row has room in its block");
    assert_eq!(plan.decodes.iter().map(|decode| decode.request).collect::<Vec<_>>(), [free]);
    world.land();
    let plan = world.plan().expect("both decode");
    assert_eq!(plan.decodes.iter().map(|decode| decode.request).collect::<Vec<_>>(), [blocked, free]);
    assert_eq!(world.scheduler.stats().preemptions, 0);
}

#[test]
fn a_filter_that_comes_after_the_row_was_given_away_is_harmless() {
    let mut world = World::new(Config { max_batch_size: 1, ..roomy() });
    world.filter_late = true;
    let requests: Vec<_> = (0..4).map(|_| world.submit(4, 3)).collect();
    world.drain();
    for request in requests {
        assert_eq!(world.stories[&request].finished, Some(FinishReason::Length));
    }
    world.check_all_is_back();
}
