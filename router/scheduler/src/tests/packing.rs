//! One token budget: decode rows first, then prompt chunks.

use super::world::{World, roomy, with_blocks};
use crate::chunk_order::TURN_AFTER;
use crate::{Config, StepPlan, Tokens};

fn chunks(plan: &StepPlan) -> Vec<(u64, u32)> {
    plan.chunks.iter().map(|chunk| (chunk.request.0, chunk.tokens.0)).collect()
}

#[test]
fn a_long_prompt_is_cut_into_chunks_and_only_the_last_one_samples() {
    let mut world = World::new(roomy());
    world.submit(40, 2);
    let plans: Vec<StepPlan> = (0..3).map(|_| world.step().expect("it prefills")).collect();
    let cut: Vec<_> = plans.iter().map(|plan| (plan.chunks[0].start.0, plan.chunks[0].tokens.0)).collect();
    assert_eq!(cut, [(0, 16), (16, 16), (32, 8)]);
    assert_eq!(plans.iter().map(|plan| plan.chunks[0].samples).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(plans.iter().map(|plan| plan.admitted.len()).collect::<Vec<_>>(), [1, 0, 0]);
}

#[test]
fn decode_rows_are_in_every_step_beside_the_chunks_of_a_long_prompt() {
    let mut world = World::new(roomy());
    world.submit(4, 20);
    world.step();
    world.submit(60, 2);
    for _ in 0..4 {
        let plan = world.step().expect("both run");
        assert_eq!((plan.decodes.len(), plan.chunks.len()), (1, 1));
    }
}

#[test]
fn decode_rows_do_not_take_from_the_prompt_tokens() {
    let mut world = World::new(roomy());
    world.submit(4, 20);
    world.step();
    world.submit(60, 2);
    assert_eq!(chunks(&world.step().expect("both run")), [(2, 16)]);
}

/// Fixed-size prompts that exactly use up the budget left the next one an empty chunk in an engine before this one.
#[test]
fn a_budget_that_is_used_up_exactly_admits_nobody_with_an_empty_chunk() {
    let mut world = World::new(roomy());
    for _ in 0..5 {
        world.submit(4, 2);
    }
    let first = world.step().expect("four fit");
    assert_eq!(chunks(&first), [(1, 4), (2, 4), (3, 4), (4, 4)]);
    assert_eq!((first.admitted.len(), world.scheduler.stats().waiting), (4, 1));
    let second = world.step().expect("the fifth follows");
    assert_eq!((chunks(&second), second.decodes.len()), (vec![(5, 4)], 4));
    world.drain();
    world.check_all_is_back();
}

#[test]
fn the_prompt_with_the_fewest_tokens_left_gets_its_chunk_first() {
    let mut world = World::new(roomy());
    world.submit(40, 2);
    world.submit(20, 2);
    world.step(); // 24 of the first are left
    assert_eq!(chunks(&world.step().expect("the second enters")), [(2, 16)]);
    assert_eq!(chunks(&world.step().expect("both go on")), [(2, 4), (1, 12)]);
}

#[test]
fn a_short_newcomer_does_not_wait_for_a_long_prompt_that_is_being_computed() {
    let mut world = World::new(roomy());
    world.submit(100, 2);
    world.step();
    let short = world.submit(5, 1);
    assert_eq!(chunks(&world.step().expect("both run")), [(2, 5), (1, 11)]);
    assert!(world.stories[&short].finished.is_some());
}

#[test]
fn with_equally_many_tokens_left_the_row_that_prefills_goes_before_the_newcomer() {
    let mut world = World::new(roomy());
    world.submit(32, 2);
    world.step();
    world.submit(16, 2);
    assert_eq!(chunks(&world.step().expect("both run")), [(1, 16)]);
}

#[test]
fn a_long_prompt_gets_a_whole_chunk_after_every_bounded_number_of_steps() {
    let mut world = World::new(Config { max_batch_size: 64, ..roomy() });
    world.submit(100, 2);
    world.step();
    for step in 1..=2 * (TURN_AFTER + 1) {
        world.submit(16, 1); // a stream of others that would take every token
        let first = world.step().expect("somebody runs").chunks.remove(0);
        assert_eq!(first.tokens, Tokens(16));
        let its_turn = step % (TURN_AFTER + 1) == 0;
        assert_eq!(first.request.0 == 1, its_turn, "step {step}");
    }
}

#[test]
fn long_prompts_take_turns_with_each_other() {
    let mut world = World::new(Config { max_batch_size: 64, ..with_blocks(512) });
    for prompt in [200, 180, 160] {
        world.submit(prompt, 2); // each enters beside those before: it is shorter than what they have left
        world.step();
    }
    let mut waits = [0; 4];
    for _ in 0..60 {
        world.submit(16, 1);
        let plan = world.step().expect("somebody runs");
        waits.iter_mut().for_each(|waits| *waits += 1);
        plan.chunks.iter().filter(|chunk| chunk.request.0 < 4).for_each(|chunk| waits[chunk.request.0 as usize] = 0);
        assert!(waits[1..].iter().all(|&waits| waits <= 3 * (TURN_AFTER + 1)), "{waits:?}");
    }
}

#[test]
fn many_long_prompts_do_not_keep_a_short_newcomer_out() {
    let mut world = World::new(Config { max_batch_size: 64, ..with_blocks(2048) });
    for prompt in (0..10).map(|place| 700 - 20 * place) {
        world.submit(prompt, 2);
        world.step();
    }
    (0..20).for_each(|_| assert!(world.step().is_some()));
    let short = world.submit(5, 1);
    world.step();
    world.step();
    assert!(world.stories[&short].finished.is_some(), "it waits for one turn at most");
}

#[test]
fn block_tables_of_chunks_stand_before_those_of_decodes() {
    let mut world = World::new(roomy());
    world.submit(4, 9);
    world.step();
    world.submit(9, 9);
    let plan = world.step().expect("both run");
    assert_eq!((plan.chunks[0].blocks.clone(), plan.decodes[0].blocks.clone()), (0..3, 3..5));
    assert_eq!(plan.blocks.len(), 5);
}

#[test]
fn a_block_is_taken_when_a_position_needs_it_and_not_before() {
    let mut world = World::new(roomy());
    world.submit(4, 9);
    let held: Vec<u32> = (0..9)
        .map(|_| {
            world.step();
            world.scheduler.stats().blocks.held.0
        })
        .collect();
    // Positions 0–3, 4–7 and 8–11; the ninth token ends the answer.
    assert_eq!(held, [1, 2, 2, 2, 2, 3, 3, 3, 0]);
}
