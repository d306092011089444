//! Who enters, and when.

use super::world::{World, roomy, with_blocks};
use crate::{Blocks, Config, Entrance};

fn admitted(world: &mut World) -> Vec<u64> {
    world.step().map_or(vec![], |plan| plan.admitted.iter().map(|admission| admission.request.0).collect())
}

#[test]
fn admission_needs_a_free_row() {
    let mut world = World::new(Config { max_batch_size: 2, ..roomy() });
    for _ in 0..3 {
        world.submit(4, 3);
    }
    assert_eq!(admitted(&mut world), [1, 2]);
    assert_eq!(admitted(&mut world), [0; 0]);
    world.step();
    assert_eq!(admitted(&mut world), [3], "two answers of three tokens have ended");
}

#[test]
fn admission_needs_blocks_for_the_whole_prompt() {
    let mut world = World::new(with_blocks(5));
    world.submit(8, 8); // 2 blocks, then 4
    world.submit(16, 2); // 4 blocks
    assert_eq!(admitted(&mut world), [1]);
    assert_eq!(world.scheduler.stats().blocks.free, Blocks(3));
    assert_eq!(admitted(&mut world), [0; 0], "three blocks are free, four are needed");
}

#[test]
fn blocks_promised_to_a_prompt_that_is_being_computed_are_not_promised_again() {
    let mut world = World::new(with_blocks(14));
    world.submit(40, 2); // 10 blocks, 4 of them taken in the first step
    world.step();
    assert_eq!(world.scheduler.stats().blocks.free, Blocks(10));
    world.submit(20, 2); // 5 blocks; only 4 are not promised
    assert_eq!(admitted(&mut world), [0; 0]);
    world.cancel(world.unfinished()[1]);
    world.submit(16, 2); // 4 blocks
    assert_eq!(admitted(&mut world), [3]);
}

#[test]
fn admission_leaves_the_watermark_free() {
    let config = Config { watermark_permille: 150, ..with_blocks(10) }; // 1.5 blocks: 2
    let mut world = World::new(config);
    world.submit(4, 5);
    world.step();
    world.submit(32, 2); // 8 of 9 free blocks
    assert_eq!(admitted(&mut world), [0; 0]);
    let mut world = World::new(Config { watermark_permille: 150, ..with_blocks(10) });
    world.submit(4, 5);
    world.step();
    world.submit(28, 2); // 7 of 9 free blocks, one of which the first takes in this step
    assert_eq!(admitted(&mut world), [0; 0]);
    world.cancel(world.unfinished()[1]);
    world.submit(24, 2);
    assert_eq!(admitted(&mut world), [3]);
}

#[test]
fn the_first_request_into_an_empty_engine_is_exempt_from_the_watermark() {
    let mut world = World::new(Config { watermark_permille: 500, ..with_blocks(10) });
    world.submit(38, 2);
    assert_eq!(admitted(&mut world), [1]);
}

#[test]
fn nobody_overtakes_the_head_of_the_queue() {
    let mut world = World::new(with_blocks(10));
    world.submit(8, 4);
    world.step();
    world.submit(38, 2);
    world.submit(1, 1);
    assert_eq!(admitted(&mut world), [0; 0]);
    world.drain();
    world.check_all_is_back();
}

#[test]
fn while_rows_decode_the_gate_holds_newcomers_back_for_max_waiting_tokens_steps() {
    let gated = Config { waiting_served_ratio_permille: 5000, max_waiting_tokens: 3, ..roomy() };
    let mut world = World::new(gated);
    world.submit(4, 30);
    world.step();
    world.submit(4, 30);
    let waves: Vec<usize> = (0..4).map(|_| admitted(&mut world).len()).collect();
    assert_eq!(waves, [0, 0, 0, 1]);
}

#[test]
fn the_gate_opens_at_once_when_enough_wait() {
    let mut world = World::new(Config { waiting_served_ratio_permille: 2000, max_waiting_tokens: u32::MAX, ..roomy() });
    world.submit(4, 30);
    world.step();
    world.submit(4, 30);
    assert_eq!(admitted(&mut world), [0; 0]);
    world.submit(4, 30);
    assert_eq!(admitted(&mut world), [2, 3]);
}

#[test]
fn a_plan_says_whether_its_newcomers_joined_others_and_whether_they_were_overdue() {
    for chunked_prefill in [true, false] {
        let gate = Config { waiting_served_ratio_permille: 2000, max_waiting_tokens: 2, chunked_prefill, ..roomy() };
        let mut world = World::new(gate);
        let entered = |world: &mut World| {
            let plan = world.step().expect("somebody runs");
            (plan.admitted.len(), plan.entrance)
        };
        world.submit(4, 30);
        assert_eq!(entered(&mut world), (1, Entrance::Free));
        world.submit(4, 30);
        world.submit(4, 30);
        assert_eq!(entered(&mut world), (2, Entrance::Joined));
        world.submit(4, 30);
        let waves = [0; 3].map(|_| entered(&mut world));
        assert_eq!(waves, [(0, Entrance::Free), (0, Entrance::Free), (1, Entrance::Overdue)]);
    }
}

#[test]
fn the_gate_does_not_stop_a_prompt_that_has_begun() {
    let gated = Config { waiting_served_ratio_permille: 1000, max_waiting_tokens: u32::MAX, ..roomy() };
    let mut world = World::new(gated);
    world.submit(4, 30);
    world.step();
    world.submit(40, 2);
    assert_eq!(admitted(&mut world), [2]);
    let plan = world.step().expect("both run");
    assert_eq!((plan.chunks.len(), plan.decodes.len()), (1, 1));
}
