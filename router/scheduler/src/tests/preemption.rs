//! A pool that is too small, and the tokens that survive it.

use super::shard::EOS_AT;
use super::world::{World, roomy, with_blocks};
use crate::{Blocks, Config, FinishReason, Micros, Request, Tokens};

/// Six blocks of four tokens: two requests of 4 + 20 tokens cannot both grow to their end.
fn small() -> Config {
    with_blocks(6)
}

#[test]
fn when_blocks_run_out_the_request_that_arrived_last_is_preempted_and_both_answers_are_whole() {
    let mut world = World::new(small());
    let (old, young) = (world.submit(4, 20), world.submit(4, 20));
    world.drain();
    assert_eq!((world.stories[&old].preemptions, world.stories[&young].preemptions), (0, 1));
    for request in [old, young] {
        assert_eq!(world.stories[&request].finished, Some(FinishReason::Length));
    }
    world.check_all_is_back();
}

#[test]
fn many_requests_share_a_small_pool_and_all_end() {
    let mut world = World::new(Config { watermark_permille: 30, ..small() });
    for n in 0..40 {
        world.submit(1 + n % 9, 1 + n % 14);
    }
    world.drain();
    assert!(world.scheduler.stats().preemptions > 0);
    assert_eq!(world.scheduler.stats().finished.length, 40);
    world.check_all_is_back();
}

#[test]
fn a_preempted_request_comes_back_before_those_that_never_ran() {
    let mut world = World::new(Config { max_batch_size: 2, ..small() });
    let (_, young, _) = (world.submit(4, 20), world.submit(4, 20), world.submit(1, 1));
    world.step_until(|world| world.stories[&young].preemptions > 0);
    let admitted = loop {
        let plan = world.step().expect("somebody runs");
        if let Some(admission) = plan.admitted.first() {
            break admission.request;
        }
    };
    assert_eq!(admitted, young);
}

#[test]
fn a_preempted_request_is_computed_again_from_the_start_with_its_answer_so_far() {
    let mut world = World::new(small());
    world.submit(4, 20);
    let young = world.submit(4, 20);
    world.step_until(|world| world.stories[&young].preemptions > 0);
    let kept = world.stories[&young].answer.len() as u32;
    let again = loop {
        let plan = world.step().expect("somebody runs");
        if let Some(admission) = plan.admitted.into_iter().next() {
            break (admission, plan.chunks[0].start);
        }
    };
    assert_eq!((again.0.generated, again.0.tokens.len() as u32), (Tokens(kept), 4 + kept));
    assert_eq!((again.0.computed, again.1), (Tokens(0), Tokens(0)));
    assert_eq!(world.stories[&young].answer.len() as u32, kept + 1, "its last chunk samples the next token");
    assert_eq!(world.scheduler.stats().recomputed_tokens, u64::from(4 + kept - 1));
}

/// Preempts `young` while its sample is in flight, and lands nothing.
fn preempted_with_a_sample_in_flight(max_new: u32, eos_at: Option<u32>) -> (World, crate::RequestId) {
    let mut world = World::new(with_blocks(4));
    world.submit(7, 9);
    let prompt = vec![eos_at.map_or(1, |index| EOS_AT + index); 7];
    let young = world.try_submit(Request::new(prompt, Tokens(max_new))).expect("it fits");
    world.plan(); // both sample; all four blocks are taken
    world.plan(); // both fill their second block
    world.land();
    world.plan(); // both need a third: the younger goes, its second sample in flight
    assert_eq!(world.stories[&young].preemptions, 1);
    (world, young)
}

#[test]
fn a_sample_in_flight_of_a_preempted_request_is_kept() {
    let (mut world, young) = preempted_with_a_sample_in_flight(9, None);
    assert_eq!(world.stories[&young].answer.len(), 1);
    world.land();
    assert_eq!(world.stories[&young].answer.len(), 2);
    assert_eq!(world.scheduler.stats().queued_tokens, 9 - 4, "one block of four tokens is still cached");
    world.drain();
    world.check_all_is_back();
}

#[test]
fn a_sample_in_flight_may_end_a_preempted_request() {
    let (mut world, young) = preempted_with_a_sample_in_flight(9, Some(1));
    world.land();
    assert_eq!(world.stories[&young].finished, Some(FinishReason::EndOfSequence));
    assert_eq!((world.scheduler.stats().waiting, world.scheduler.stats().queued_tokens), (0, 0));
    world.drain();
}

#[test]
fn a_request_whose_last_sample_is_in_flight_ends_instead_of_being_preempted() {
    let mut world = World::new(with_blocks(4));
    world.submit(7, 9);
    let young = world.submit(7, 2);
    world.plan();
    world.plan();
    world.land();
    world.plan();
    assert_eq!((world.stories[&young].preemptions, world.scheduler.stats().ending), (0, 1));
    world.land();
    assert_eq!(world.stories[&young].finished, Some(FinishReason::Length));
}

#[test]
fn a_preempted_request_is_not_admitted_before_its_sample_has_landed() {
    let config = Config { preempt_once_seed: Some(1), ..roomy() };
    let mut world = World::new(config);
    let id = world.submit(4, 2);
    world.plan();
    assert_eq!(world.plan(), None, "preempted after its first token, which is in flight");
    assert_eq!(world.stories[&id].preemptions, 1);
    world.land();
    let plan = world.plan().expect("the token is known");
    assert_eq!((plan.admitted[0].tokens.len(), plan.admitted[0].generated), (5, Tokens(1)));
}

#[test]
fn being_a_victim_is_remembered() {
    let mut world = World::new(with_blocks(6));
    let (old, young) = (world.submit(4, 20), world.submit(4, 20));
    world.step_until(|world| world.stories[&young].preemptions > 0);
    let times = |request| {
        let handle = world.scheduler.sequences.find(request).expect("it has not ended");
        world.scheduler.sequences[handle].preemptions
    };
    assert_eq!((times(old), times(young)), (0, 1));
}

#[test]
fn a_prompt_whose_promised_blocks_went_to_a_decode_row_waits_and_goes_on() {
    let config = Config { max_batch_prefill_tokens: Tokens(2), ..with_blocks(10) };
    let mut world = World::new(config);
    let decoding = world.submit(1, 30); // grows to 8 blocks
    world.step();
    let prompt = world.submit(36, 2); // 9 blocks were free when it entered, and 18 steps it takes
    let mut waited = 0;
    while world.stories[&decoding].finished.is_none() {
        waited += usize::from(world.step().expect("a row decodes").chunks.is_empty());
    }
    assert!(waited > 0);
    world.drain();
    assert_eq!((world.stories[&prompt].finished, world.stories[&prompt].preemptions), (Some(FinishReason::Length), 1));
    world.check_all_is_back();
}

#[test]
fn every_request_is_preempted_once_where_the_test_seed_says() {
    let mut world = World::new(Config { preempt_once_seed: Some(42), ..roomy() });
    let requests: Vec<_> = (0..8).map(|n| world.submit(3, 2 + n * 2)).collect();
    let single = world.submit(3, 1);
    world.drain();
    for request in requests {
        assert_eq!(world.stories[&request].preemptions, 1);
    }
    assert_eq!(world.stories[&single].preemptions, 0);
    assert_eq!(world.scheduler.stats().preemptions, 8);
}

#[test]
fn a_victim_is_swapped_out_and_in_when_the_shard_has_host_memory_and_nothing_is_computed_twice() {
    let mut world = World::new(Config { host_blocks: Blocks(8), prefix_cache: false, ..small() });
    let (old, young) = (world.submit(4, 20), world.submit(4, 20));
    world.drain();
    let stats = world.scheduler.stats();
    assert_eq!((world.stories[&old].preemptions, world.stories[&young].preemptions), (0, 1));
    assert!(stats.swapped_blocks >= 3, "{stats:?}");
    assert_eq!((stats.recomputed_tokens, stats.host_blocks_used), (0, Blocks(0)));
    world.check_all_is_back();
}

#[test]
fn a_victim_is_computed_again_when_copying_would_cost_more() {
    let slow = Config { host_blocks: Blocks(8), swap_time: Micros(1_000_000), ..small() };
    let mut world = World::new(Config { prefix_cache: false, ..slow });
    world.submit(4, 20);
    world.submit(4, 20);
    world.drain();
    let stats = world.scheduler.stats();
    assert_eq!((stats.preemptions, stats.swapped_blocks), (1, 0));
}

#[test]
fn where_host_memory_is_full_a_victim_is_computed_again() {
    let mut world = World::new(Config { host_blocks: Blocks(1), prefix_cache: false, ..small() });
    world.submit(4, 20);
    world.submit(4, 20);
    world.drain();
    assert_eq!(world.scheduler.stats().swapped_blocks, 0);
}
