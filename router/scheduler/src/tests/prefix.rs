//! The prefix cache: what is found, what never is, and what it costs others.

use super::shard::{Fault, answer};
use super::world::{World, roomy, with_blocks};
use crate::{Blocks, CacheRoot, Config, Request, RequestId, Tokens};

/// `length` tokens of a text that many share.
fn system(length: u32) -> Vec<u32> {
    (0..length).map(|position| 10 + position % 40).collect()
}

fn with_tail(mut prompt: Vec<u32>, tail: &[u32]) -> Vec<u32> {
    prompt.extend_from_slice(tail);
    prompt
}

fn submit(world: &mut World, prompt: Vec<u32>, max_new: u32) -> RequestId {
    world.try_submit(Request::new(prompt, Tokens(max_new))).expect("it fits")
}

/// Prompt tokens that the next admission finds cached.
fn found(world: &mut World) -> u32 {
    for _ in 0..100 {
        let plan = world.step().expect("somebody waits");
        if let Some(admission) = plan.admitted.first() {
            return admission.computed.0;
        }
    }
    panic!("nobody was admitted");
}

#[test]
fn a_second_request_starts_where_it_begins_to_differ_in_whole_blocks() {
    let mut world = World::new(roomy());
    submit(&mut world, with_tail(system(10), &[1, 2]), 1);
    world.drain();
    submit(&mut world, with_tail(system(10), &[3, 4]), 1);
    assert_eq!(found(&mut world), 8, "two blocks of four are the same, the third is not");
    world.drain();
    let prefix = world.scheduler.stats().prefix;
    assert_eq!((prefix.looked_up_tokens, prefix.hit_tokens), (24, 8));
}

#[test]
fn a_full_hit_still_computes_the_last_token() {
    let mut world = World::new(roomy());
    submit(&mut world, system(8), 1);
    world.drain();
    submit(&mut world, system(8), 1);
    assert_eq!(found(&mut world), 4);
    world.drain();
}

#[test]
fn a_prefix_is_shared_while_its_first_request_still_runs() {
    let mut world = World::new(roomy());
    submit(&mut world, system(12), 30);
    world.step();
    submit(&mut world, with_tail(system(12), &[5]), 2);
    assert_eq!(found(&mut world), 12);
    world.drain();
    world.check_all_is_back();
}

#[test]
fn the_second_turn_of_a_chat_finds_the_first_answer() {
    let mut world = World::new(roomy());
    let first = submit(&mut world, system(6), 10);
    world.drain();
    let turn = with_tail(system(6), &world.stories[&first].answer.clone());
    submit(&mut world, with_tail(turn, &[7, 8, 9]), 1);
    assert!(found(&mut world) >= 12, "16 tokens were said, and the last of them was never computed");
    world.drain();
}

#[test]
fn two_that_compute_the_same_beginning_at_once_end_up_with_one_copy() {
    let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(32), ..roomy() });
    // Twelve tokens are three blocks: too little to wait for where prompts are not the same.
    submit(&mut world, with_tail(system(12), &[1]), 40);
    submit(&mut world, with_tail(system(12), &[2, 3]), 40);
    let plan = world.step().expect("both enter");
    assert_eq!(plan.admitted.len(), 2);
    world.step();
    assert_eq!(world.scheduler.stats().blocks.held, Blocks(3 + 2), "three shared blocks and one each of their own");
    world.check_books();
    world.drain();
    world.check_all_is_back();
}

#[test]
fn requests_with_other_salts_or_adapters_share_nothing() {
    let mut world = World::new(roomy());
    submit(&mut world, system(12), 1);
    world.drain();
    for root in [
        CacheRoot { salt: Some("mine".into()), ..CacheRoot::default() },
        CacheRoot { adapter: Some(1), ..CacheRoot::default() },
        CacheRoot { images: vec![7], ..CacheRoot::default() },
    ] {
        let request = Request { root, ..Request::new(system(12), Tokens(1)) };
        world.try_submit(request).expect("it fits");
        assert_eq!(found(&mut world), 0);
        world.drain();
    }
}

#[test]
fn a_request_that_wants_every_position_computes_every_position() {
    let mut world = World::new(roomy());
    submit(&mut world, system(12), 1);
    world.drain();
    let request = Request { reads_cache: false, ..Request::new(system(12), Tokens(1)) };
    world.try_submit(request).expect("it fits");
    assert_eq!(found(&mut world), 0);
}

#[test]
fn without_a_prefix_cache_nothing_is_kept() {
    let mut world = World::new(Config { prefix_cache: false, ..roomy() });
    submit(&mut world, system(12), 1);
    world.drain();
    assert_eq!(world.scheduler.stats().blocks.free, Blocks(64));
    submit(&mut world, system(12), 1);
    assert_eq!(found(&mut world), 0);
}

/// TGI's bug: a prompt whose turn did not come because the budget was just used up was put back, and its blocks were
/// published as computed.
#[test]
fn prompts_that_exactly_use_up_the_budget_publish_nothing_that_was_not_computed() {
    let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(16), ..roomy() });
    for salt in 0..5 {
        submit(&mut world, (0..4).map(|position| 1 + salt * 7 + position).collect(), 3);
    }
    let plan = world.plan().expect("four enter");
    assert_eq!(plan.admitted.len(), 4, "four prompts of four tokens are the whole budget");
    submit(&mut world, (0..4).map(|position| 1 + 4 * 7 + position).collect(), 3);
    world.drain(); // the pretend shard stops the test at KV that nobody wrote
}

#[test]
fn what_a_failed_step_should_have_computed_is_never_found() {
    let mut world = World::new(roomy());
    let failed = submit(&mut world, system(12), 3);
    world.fault = Some(Fault::Step);
    world.step();
    assert!(world.stories[&failed].finished.is_some());
    submit(&mut world, system(12), 3);
    assert_eq!(found(&mut world), 0);
    world.drain();
}

#[test]
fn what_a_cancelled_prompt_had_computed_is_found_and_the_rest_is_not() {
    let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(8), ..roomy() });
    let first = submit(&mut world, system(40), 3);
    world.step();
    world.cancel(first);
    submit(&mut world, system(40), 3);
    assert_eq!(found(&mut world), 8);
    world.drain();
}

#[test]
fn nothing_of_a_lost_session_is_found() {
    let mut world = World::new(roomy());
    submit(&mut world, system(12), 1);
    world.drain();
    world.lose_session();
    assert_eq!(world.scheduler.stats().blocks.free, Blocks(64));
    submit(&mut world, system(12), 1);
    assert_eq!(found(&mut world), 0);
}

#[test]
fn cached_blocks_are_given_up_only_when_the_pool_is_short_and_the_oldest_use_first() {
    let mut world = World::new(with_blocks(8));
    for family in [100, 200] {
        submit(&mut world, vec![family; 12], 1); // three blocks each
        world.drain();
    }
    assert_eq!(world.scheduler.stats().blocks.cached, Blocks(6));
    submit(&mut world, vec![44; 16], 1); // needs four blocks; two are free
    world.drain();
    assert_eq!(world.scheduler.stats().prefix.evicted_blocks, 2);
    submit(&mut world, vec![200; 13], 1);
    assert_eq!(found(&mut world), 12, "the younger is whole");
    world.drain();
    submit(&mut world, vec![100; 13], 1);
    assert!(found(&mut world) <= 4, "the older lost its tail first");
}

#[test]
fn a_request_that_cannot_enter_evicts_nothing() {
    let mut world = World::new(with_blocks(10));
    submit(&mut world, vec![50; 12], 1);
    world.drain(); // three blocks cached
    submit(&mut world, vec![60; 16], 20); // four held, growing
    world.step();
    submit(&mut world, vec![70; 28], 2); // seven blocks: three free and three cached are too few
    for _ in 0..4 {
        world.step();
    }
    assert_eq!(world.scheduler.stats().prefix.evicted_blocks, 0);
}

#[test]
fn a_burst_with_one_prefix_computes_it_once() {
    // The first prompt leaves room for half of the second in its own step.
    let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(64), ..roomy() });
    for tail in 1..=8 {
        submit(&mut world, with_tail(system(40), &[tail, tail]), 2);
    }
    assert_eq!(computed_until_done(&mut world), 40 + 8 * 2);
}

/// Tokens of prompts that were computed until nobody was left.
fn computed_until_done(world: &mut World) -> u32 {
    let mut computed = 0;
    while !world.unfinished().is_empty() {
        let plan = world.step().expect("somebody runs");
        computed += plan.chunks.iter().map(|chunk| chunk.tokens.0).sum::<u32>();
    }
    computed
}

#[test]
fn equal_prompts_share_their_whole_blocks_however_short_they_are() {
    for length in [5, 11, 100] {
        let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(512), ..roomy() });
        for _ in 0..4 {
            submit(&mut world, system(length), 8);
        }
        let whole_blocks = (length - 1) / 4 * 4;
        assert_eq!(computed_until_done(&mut world), length + 3 * (length - whole_blocks), "{length} tokens");
        world.drain();
        world.check_all_is_back();
    }
}

#[test]
fn a_short_common_line_defers_nobody() {
    let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(64), ..roomy() });
    submit(&mut world, with_tail(system(12), &[1; 20]), 2);
    submit(&mut world, with_tail(system(12), &[2; 20]), 2);
    assert_eq!(world.step().expect("both enter").admitted.len(), 2);
}

#[test]
fn one_that_was_deferred_is_released_when_the_other_ends() {
    let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(8), ..roomy() });
    let first = submit(&mut world, with_tail(system(40), &[1]), 2);
    let second = submit(&mut world, with_tail(system(40), &[2]), 2);
    let plan = world.step().expect("the first enters");
    assert_eq!((plan.admitted.len(), plan.admitted[0].request), (1, first));
    world.cancel(first);
    let plan = world.step().expect("the second enters");
    assert_eq!((plan.admitted[0].request, plan.admitted[0].computed), (second, Tokens(8)));
    world.drain();
}

#[test]
fn others_pass_those_that_are_deferred() {
    let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(8), ..roomy() });
    submit(&mut world, with_tail(system(40), &[1]), 2);
    submit(&mut world, with_tail(system(40), &[2]), 2);
    world.step();
    let other = submit(&mut world, vec![3, 3], 2);
    let plan = world.step().expect("somebody runs");
    assert_eq!(plan.admitted[0].request, other);
    world.drain();
}

#[test]
fn a_preempted_request_finds_what_is_left_of_it() {
    let mut world = World::new(Config { preempt_once_seed: Some(42), ..roomy() });
    let request = world.submit(11, 20);
    world.drain();
    let story = &world.stories[&request];
    assert_eq!((story.preemptions, story.answer.clone()), (1, answer(&story.prompt, 20)));
    let stats = world.scheduler.stats();
    assert!(stats.prefix.hit_tokens >= 8, "{stats:?}");
    assert!(stats.recomputed_tokens <= 4, "{stats:?}");
}
