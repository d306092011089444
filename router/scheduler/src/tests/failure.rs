//! Rows that fail, steps that fail, sessions that are lost.

use super::shard::Fault;
use super::world::{World, roomy};
use crate::preemption::preempt_at;
use crate::{Blocks, Config, FinishReason, Sample, Scheduler, StepId, StepOutcome, Tokens};

#[test]
fn a_failed_row_ends_its_request_alone() {
    let mut world = World::new(roomy());
    let (first, second) = (world.submit(4, 5), world.submit(4, 5));
    world.step();
    world.fault = Some(Fault::Row(1));
    world.step();
    assert_eq!(world.stories[&second].finished, Some(FinishReason::Failed));
    world.drain();
    assert_eq!(world.stories[&first].finished, Some(FinishReason::Length));
    world.check_all_is_back();
}

#[test]
fn a_row_that_fails_in_the_middle_of_its_prompt_ends_its_request() {
    let mut world = World::new(roomy());
    let id = world.submit(40, 5);
    world.fault = Some(Fault::Row(0));
    let plan = world.step().expect("it prefills");
    assert!(!plan.chunks[0].samples);
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Failed));
}

#[test]
fn a_failed_sample_ends_its_request_even_if_the_row_is_not_named() {
    let mut scheduler = Scheduler::new(roomy());
    let request = crate::Request::new(vec![1], Tokens(3));
    scheduler.submit(request.clone(), crate::Micros(0)).expect("it fits");
    scheduler.submit(request, crate::Micros(0)).expect("it fits");
    let plan = scheduler.plan_step(crate::Micros(0)).expect("two wait");
    // The second sample is missing altogether.
    let outcome = StepOutcome::Done { samples: vec![Sample::Failed], failed: vec![], took: crate::Micros(1) };
    scheduler.complete_step(plan.step, outcome, crate::Micros(0));
    assert_eq!(scheduler.stats().finished.failed, 2);
}

#[test]
fn a_failed_step_ends_every_request_in_it_and_nobody_else() {
    let mut world = World::new(Config { max_batch_size: 2, ..roomy() });
    let inside = [world.submit(4, 5), world.submit(4, 5)];
    let outside = world.submit(4, 5);
    world.fault = Some(Fault::Step);
    world.step();
    for request in inside {
        assert_eq!(world.stories[&request].finished, Some(FinishReason::Failed));
    }
    world.drain();
    assert_eq!(world.stories[&outside].finished, Some(FinishReason::Length));
    world.check_all_is_back();
}

#[test]
fn blocks_of_a_failed_step_come_back_when_the_later_step_in_flight_has_landed() {
    let mut world = World::new(roomy());
    world.submit(4, 9);
    world.fault = Some(Fault::Step);
    world.plan();
    world.plan();
    world.land();
    assert_eq!(world.scheduler.stats().blocks.leaving, Blocks(2));
    world.land();
    assert_eq!(world.scheduler.stats().blocks.free, Blocks(64));
    assert_eq!(world.scheduler.stats().finished.failed, 1, "once");
}

#[test]
fn when_the_session_is_lost_everybody_waits_in_order_of_arrival_and_every_block_is_free() {
    let mut world = World::new(Config { max_batch_size: 2, ..roomy() });
    let requests: Vec<_> = (0..4).map(|_| world.submit(4, 6)).collect();
    world.plan();
    world.plan();
    world.land();
    world.lose_session();
    let stats = world.scheduler.stats();
    assert_eq!((stats.waiting, stats.running, stats.steps_in_flight), (4, 0, 0));
    assert_eq!(stats.blocks.free, Blocks(64));
    let preempted: Vec<u32> = requests.iter().map(|request| world.stories[request].preemptions).collect();
    assert_eq!((preempted, stats.preemptions), (vec![1, 1, 0, 0], 0), "told as preempted, not counted as victims");
    let plan = world.plan().expect("a fresh shard");
    assert_eq!(plan.admitted.iter().map(|admission| admission.request).collect::<Vec<_>>(), requests[..2]);
    assert_eq!(plan.admitted[0].generated, Tokens(1), "tokens that had landed are kept");
    world.drain();
    for request in requests {
        assert_eq!(world.stories[&request].finished, Some(FinishReason::Length));
    }
    world.check_all_is_back();
}

#[test]
fn an_answer_whose_last_sample_was_lost_with_the_session_is_sampled_again() {
    let mut world = World::new(roomy());
    let id = world.submit(4, 2);
    world.plan();
    world.plan();
    world.plan(); // its row is given up: the last sample is on its way
    world.land();
    world.lose_session();
    assert_eq!(world.stories[&id].answer.len(), 1);
    world.drain();
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Length));
}

#[test]
fn outcomes_of_a_lost_session_are_ignored() {
    let mut world = World::new(roomy());
    let id = world.submit(4, 5);
    world.plan();
    world.plan();
    world.lose_session();
    world.plan();
    world.deliver_stale();
    world.deliver_stale();
    assert_eq!(world.stories[&id].answer.len(), 0);
    world.drain();
    world.check_all_is_back();
}

#[test]
fn the_outcome_of_an_unknown_step_is_ignored() {
    let mut world = World::new(roomy());
    let id = world.submit(4, 5);
    world.plan();
    world.scheduler.complete_step(StepId(9), StepOutcome::Failed, crate::Micros(0));
    world.drain();
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Length));
}

#[test]
fn steps_and_epochs_go_on_counting_after_a_session_is_lost() {
    let mut world = World::new(roomy());
    world.submit(4, 5);
    let before = world.plan().expect("it runs");
    world.lose_session();
    let after = world.plan().expect("it runs again");
    assert_eq!(after.step, StepId(before.step.0 + 1));
    assert!(after.admitted[0].epoch > before.admitted[0].epoch);
}

#[test]
fn a_step_without_memory_is_computed_again_in_smaller_ones() {
    let mut world = World::new(roomy());
    let requests = [world.submit(9, 5), world.submit(3, 5)];
    world.fault = Some(Fault::Memory);
    let first = world.step().expect("both prefill");
    assert_eq!(first.tokens(), Tokens(12));
    assert_eq!(world.scheduler.stats().waiting, 2);
    let again = world.step().expect("they are computed again");
    assert_eq!(again.tokens(), Tokens(6));
    world.drain();
    for request in requests {
        assert_eq!(world.stories[&request].finished, Some(FinishReason::Length));
    }
    world.check_all_is_back();
}

#[test]
fn what_was_in_flight_behind_a_step_without_memory_is_computed_again_too() {
    let mut world = World::new(roomy());
    let id = world.submit(4, 2);
    world.step();
    world.submit(4, 9);
    world.fault = Some(Fault::Memory);
    world.plan(); // the first one's last token: its row is given up in the next
    world.plan();
    world.land();
    world.land();
    assert_eq!(world.stories[&id].finished, None);
    world.drain();
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Length));
    world.check_all_is_back();
}

#[test]
fn rows_that_decode_are_fewer_after_a_step_without_memory() {
    let mut world = World::new(roomy());
    for _ in 0..6 {
        world.submit(4, 9);
    }
    world.step();
    world.step();
    world.fault = Some(Fault::Memory);
    world.step();
    let rows = (0..4).filter_map(|_| world.step()).map(|plan| plan.decodes.len() + plan.chunks.len()).max();
    assert_eq!(rows, Some(3));
    world.drain();
    world.check_all_is_back();
}

#[test]
fn one_token_for_which_there_is_no_memory_fails() {
    let mut world = World::new(roomy());
    let id = world.submit(1, 5);
    world.fault = Some(Fault::Memory);
    world.step();
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Failed));
    world.drain();
    world.check_all_is_back();
}

/// It is preempted for the test's sake between two chunks: nobody else's need, which would keep it out of that plan.
#[test]
fn what_a_step_in_flight_may_not_compute_is_not_copied_out_and_in_by_one_plan() {
    let (seed, max_new) = (7, 20);
    let config = Config { preempt_once_seed: Some(seed), host_blocks: Blocks(16), prefix_cache: false, ..roomy() };
    let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(4), ..config });
    let id = world.submit(8, max_new);
    let loses_row_at = preempt_at(seed, id, Tokens(max_new)).expect("it has a second token");
    world.step_until(|world| world.stories[&id].answer.len() == loses_row_at.0 as usize);
    world.lose_session();
    world.fault = Some(Fault::Memory);
    world.plan();
    assert_eq!(world.plan(), None, "the chunk in flight will fail");
    world.drain();
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Length));
}
