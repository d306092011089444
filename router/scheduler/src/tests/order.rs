//! Who overtakes whom, who waits how long, and what baselines do.

use super::world::{World, roomy, with_blocks};
use crate::{AdmissionRule, Blocks, Config, Micros, PolicyKind, Request, RequestId, Tokens};

fn admitted(world: &mut World) -> Vec<u64> {
    world.step().map_or(vec![], |plan| plan.admitted.iter().map(|admission| admission.request.0).collect())
}

/// vllm#31731: a request that waits for blocks kept everybody behind it waiting too.
#[test]
fn small_requests_pass_one_that_waits_for_blocks_but_only_so_often() {
    let mut world = World::new(Config { max_skips: 2, ..with_blocks(12) });
    world.submit(8, 30); // holds two blocks, and grows to ten
    world.step();
    let huge = world.submit(40, 2); // ten blocks
    for _ in 0..4 {
        world.submit(1, 2);
    }
    assert_eq!(admitted(&mut world), [3, 4], "two pass, then nobody does");
    for _ in 0..3 {
        assert_eq!(admitted(&mut world), [0; 0]);
    }
    world.drain();
    assert!(world.stories[&huge].finished.is_some());
}

#[test]
fn reserving_admits_far_fewer_than_learning_what_answers_need() {
    let most = |admission: AdmissionRule| {
        let mut world = World::new(Config { admission, max_batch_size: 64, max_total_tokens: Tokens(256), ..roomy() });
        let mut most = 0;
        for round in 0..12 {
            for salt in 0..16 {
                // Allows 40 tokens, ends after 8.
                let mut prompt = vec![1 + salt + round; 8];
                prompt[0] = super::shard::EOS_AT + 7;
                world.try_submit(Request::new(prompt, Tokens(40))).expect("no limit");
            }
            while !world.unfinished().is_empty() {
                world.plan();
                most = most.max(world.scheduler.stats().running);
                world.land();
            }
        }
        most
    };
    let (reserved, learned) = (most(AdmissionRule::Reserve), most(AdmissionRule::Learned));
    assert!(learned * 2 >= reserved * 3, "{learned} at a time, against {reserved}");
}

#[test]
fn learned_admission_keeps_requests_out_that_would_only_be_preempted() {
    let preemptions = |admission: AdmissionRule| {
        let config = Config { admission, max_batch_size: 32, ..with_blocks(48) };
        let mut world = World::new(config);
        for salt in 0..60 {
            let prompt = (0..8).map(|position| 1 + (salt * 11 + position) % 97).collect();
            world.try_submit(Request::new(prompt, Tokens(24))).expect("no limit");
        }
        world.drain();
        world.scheduler.stats().preemptions
    };
    let (learned, watermark) = (preemptions(AdmissionRule::Learned), preemptions(AdmissionRule::Watermark));
    assert!(learned * 4 <= watermark, "{learned} preemptions, against {watermark}");
}

#[test]
fn a_static_group_lets_nobody_in_before_its_longest_has_ended() {
    let config = Config { policy: PolicyKind::Static { group_size: 2 }, max_batch_size: 4, ..roomy() };
    let mut world = World::new(config);
    for max_new in [2, 6, 2] {
        world.submit(1, max_new);
    }
    assert_eq!(admitted(&mut world), [1, 2]);
    let waves: Vec<usize> = (0..6).map(|_| admitted(&mut world).len()).collect();
    assert_eq!(waves, [0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_dynamic_batch_waits_for_its_window_and_says_until_when() {
    let config = Config { policy: PolicyKind::Dynamic { window: Micros(50_000) }, max_batch_size: 4, ..roomy() };
    let mut world = World::new(config);
    world.submit(1, 3);
    let arrived = world.now();
    assert_eq!(world.step(), None);
    assert_eq!(world.scheduler.wakes_at(), Some(arrived + Micros(50_000)));
    world.wait(Micros(50_000));
    world.submit(1, 3);
    assert_eq!(admitted(&mut world).len(), 2);
}

/// Eight requests of one prompt token on four rows: 50 steps when rows are filled at once, 90 in groups.
#[test]
fn the_golden_case_of_continuous_batching() {
    let steps = |policy: PolicyKind| {
        let mut world = World::new(Config { policy, max_batch_size: 4, total_blocks: Blocks(512), ..roomy() });
        for max_new in [5, 50, 8, 12, 40, 3, 30, 7] {
            world.submit(1, max_new);
        }
        world.drain()
    };
    assert_eq!(steps(PolicyKind::Fcfs), 50);
    assert_eq!(steps(PolicyKind::Static { group_size: 4 }), 90);
}

#[test]
fn without_chunking_a_prompt_pauses_those_who_decode() {
    let mut world = World::new(Config { chunked_prefill: false, ..roomy() });
    world.submit(4, 10);
    world.step();
    world.submit(12, 10);
    world.submit(12, 10); // the budget is 16: it waits for the next step
    let plan = world.step().expect("a prompt");
    assert_eq!((plan.chunks.len(), plan.decodes.len()), (1, 0));
    let plan = world.step().expect("the other prompt");
    assert_eq!((plan.chunks.len(), plan.decodes.len()), (1, 0));
    let plan = world.step().expect("three decode");
    assert_eq!((plan.chunks.len(), plan.decodes.len()), (0, 3));
}

#[test]
fn without_chunking_a_prompt_beyond_any_budget_is_cut_all_the_same() {
    let mut world = World::new(Config { chunked_prefill: false, ..roomy() });
    let long: RequestId = world.submit(40, 2);
    world.drain();
    assert!(world.stories[&long].finished.is_some());
}

/// vllm#10774: a long prompt took the whole budget of step after step.
#[test]
fn with_a_time_target_chunks_are_cut_so_that_steps_with_decode_rows_keep_it() {
    let config = Config {
        target_itl: Some(Micros(1_000)),
        max_batch_prefill_tokens: Tokens(2048),
        total_blocks: Blocks(4096),
        max_total_tokens: Tokens(16_000),
        ..roomy()
    };
    let mut world = World::new(config);
    world.submit(4, 400);
    // The pretend shard takes 100 µs and 1 µs a token; the model has to learn that first.
    for _ in 0..20 {
        world.submit(200, 4);
        (0..4).for_each(|_| drop(world.step()));
    }
    world.submit(14_000, 1);
    let cost = *world.scheduler.step_cost();
    let mut chunks = 0;
    for _ in 0..4 {
        let plan = world.step().expect("both run");
        assert!(cost.predict(crate::StepShape::of(&plan)) <= Micros(1_000));
        let tokens: u32 = plan.chunks.iter().map(|chunk| chunk.tokens.0).sum();
        assert!(
            (500..1000).contains(&tokens),
            "{tokens}: nearly what fits the target, far below the 2,048 of the budget"
        );
        chunks += plan.chunks.len();
    }
    assert!(chunks > 0);
}
