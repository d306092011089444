//! Too many, too late, too much.

use super::world::{World, roomy, with_blocks};
use crate::preemption::SPARED_FOR;
use crate::{
    Blocks, Config, FinishReason, Micros, Overload, OverloadCause, PolicyKind, Priority, Rejected, Request, RequestId,
    Tenant, Tokens,
};

fn of_tenant(world: &mut World, tenant: u32) -> Result<RequestId, Rejected> {
    let salt = world.stories.len() as u32 % 40;
    world.try_submit(Request { tenant: Tenant(tenant), ..Request::new(vec![1 + salt; 4], Tokens(4)) })
}

fn cause(refused: Result<RequestId, Rejected>) -> OverloadCause {
    match refused {
        Err(Rejected::Overloaded(Overload { cause, .. })) => cause,
        other => panic!("not an overload: {other:?}"),
    }
}

#[test]
fn the_queue_is_bounded_in_tokens_too() {
    let mut world = World::new(Config { max_queue_tokens: Some(20), max_batch_size: 1, ..roomy() });
    world.submit(12, 4);
    world.step();
    world.submit(12, 4);
    let refused = world.try_submit(Request::new(vec![1; 9], Tokens(1)));
    let limit = OverloadCause::QueueTokens { queued: 12, tokens: Tokens(9), limit: 20 };
    assert_eq!(cause(refused), limit);
    assert!(["12", "9", "20", "--max-queue-tokens"].iter().all(|part| limit.to_string().contains(part)));
    assert!(world.try_submit(Request::new(vec![1; 8], Tokens(1))).is_ok());
}

#[test]
fn one_request_into_an_empty_queue_is_taken_whatever_its_length() {
    let mut world = World::new(Config { max_queue_tokens: Some(20), ..roomy() });
    assert!(world.try_submit(Request::new(vec![1; 60], Tokens(1))).is_ok());
}

#[test]
fn a_request_that_waited_beyond_its_deadline_is_dropped_and_not_served_late() {
    let mut world = World::new(Config { max_batch_size: 1, ..roomy() });
    world.submit(4, 30);
    world.step();
    let deadline = Some(world.now() + Micros(10_000));
    let late = world.try_submit(Request { deadline, ..Request::new(vec![1, 2], Tokens(2)) }).expect("it may make it");
    assert_eq!(world.scheduler.wakes_at(), deadline);
    world.plan();
    assert_eq!(world.stories[&late].finished, None);
    world.wait(Micros(10_000));
    world.plan();
    assert_eq!(world.stories[&late].finished, Some(FinishReason::DeadlineMissed));
    assert_eq!(world.scheduler.wakes_at(), None);
    world.drain();
}

#[test]
fn a_deadline_passes_also_while_two_steps_are_in_flight() {
    let mut world = World::new(Config { max_batch_size: 1, ..roomy() });
    world.submit(4, 30);
    world.plan();
    world.plan();
    let deadline = Some(world.now() + Micros(5_000));
    let late = world.try_submit(Request { deadline, ..Request::new(vec![1, 2], Tokens(2)) }).expect("it may make it");
    world.wait(Micros(5_000));
    assert_eq!(world.plan(), None);
    assert_eq!(world.stories[&late].finished, Some(FinishReason::DeadlineMissed));
    world.drain();
}

#[test]
fn a_request_that_runs_is_not_dropped_at_its_deadline() {
    let mut world = World::new(roomy());
    let deadline = Some(Micros(5_000));
    let id = world.try_submit(Request { deadline, ..Request::new(vec![1, 2], Tokens(9)) }).expect("in time");
    world.step();
    world.wait(Micros(1_000_000));
    world.drain();
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Length));
}

/// One row; a request of 8 + 10 tokens takes 10 steps of 10 ms. Runs ten of them, as many wait.
fn loaded() -> World {
    half_done(Config { max_batch_size: 1, ..roomy() }, 20)
}

/// So many requests of 8 + 10 tokens that came at once, half of which have ended, in steps of 10 ms.
fn half_done(config: Config, requests: u64) -> World {
    let mut world = World::new(config);
    (0..requests).for_each(|_| _ = world.submit(8, 10));
    while world.scheduler.stats().finished.total() < requests / 2 {
        world.step();
        world.wait(Micros(8_000));
    }
    world
}

#[test]
fn a_request_that_is_predicted_to_begin_too_late_is_refused_at_once() {
    let mut world = loaded();
    let refused = world
        .try_submit(Request { deadline: Some(world.now() + Micros(300_000)), ..Request::new(vec![1, 2], Tokens(2)) });
    let OverloadCause::Deadline { predicted, left } = cause(refused) else { panic!("for another reason") };
    assert!(predicted > left, "{predicted} µs, {left} left");
    let patient = Request { deadline: Some(world.now() + Micros(9_000_000)), ..Request::new(vec![1, 2], Tokens(2)) };
    assert!(world.try_submit(patient).is_ok());
}

/// The predicted time in which the queue is drained, and the true one.
fn drain_times(mut world: World) -> (Micros, Micros) {
    let (predicted, began) = (world.scheduler.drain_time(), world.now());
    while world.scheduler.stats().waiting > 0 {
        world.step();
        world.wait(Micros(8_000));
    }
    (predicted, world.now() - began)
}

#[test]
fn the_predicted_drain_time_is_within_a_factor_of_two_of_the_true_one() {
    let (predicted, truth) = drain_times(loaded());
    assert!(predicted.0 <= 2 * truth.0 && truth.0 <= 2 * predicted.0, "{predicted} µs, was {truth}");
}

#[test]
fn where_blocks_are_short_the_rows_that_fit_count_and_not_those_allowed() {
    // 18 tokens are 5 blocks: of 32 rows three or four have room.
    let (predicted, truth) = drain_times(half_done(Config { max_batch_size: 32, ..with_blocks(20) }, 80));
    assert!(predicted.0 <= 2 * truth.0 && truth.0 <= 2 * predicted.0, "{predicted} µs, was {truth}");
}

#[test]
fn under_fair_a_flood_does_not_keep_another_tenant_out_of_a_full_queue() {
    let config = Config { policy: PolicyKind::Fair, max_concurrent_requests: Some(8), max_batch_size: 2, ..roomy() };
    let mut world = World::new(config);
    let flood: Vec<_> = (0..8).map(|_| of_tenant(&mut world, 1).expect("there is room")).collect();
    world.step();
    assert!(matches!(cause(of_tenant(&mut world, 1)), OverloadCause::Requests { limit: 8 }));
    let quiet = of_tenant(&mut world, 2).expect("below its share");
    assert_eq!(world.stories[&flood[7]].finished, Some(FinishReason::Displaced));
    world.drain();
    assert_eq!(world.stories[&quiet].finished, Some(FinishReason::Length));
}

#[test]
fn under_fair_a_tenant_below_its_share_is_let_in_although_all_of_the_flood_runs() {
    let config = Config { policy: PolicyKind::Fair, max_concurrent_requests: Some(4), max_batch_size: 8, ..roomy() };
    let mut world = World::new(config);
    for _ in 0..4 {
        of_tenant(&mut world, 1).expect("there is room");
    }
    world.step();
    assert!(of_tenant(&mut world, 1).is_err());
    let quiet = of_tenant(&mut world, 2).expect("below its share");
    world.drain();
    assert_eq!(world.stories[&quiet].finished, Some(FinishReason::Length));
}

#[test]
fn under_fair_a_flood_of_tokens_makes_place_too() {
    let config = Config { policy: PolicyKind::Fair, max_queue_tokens: Some(20), max_batch_size: 1, ..roomy() };
    let mut world = World::new(config);
    for _ in 0..6 {
        of_tenant(&mut world, 1).expect("four tokens each");
        world.plan();
    }
    assert!(matches!(cause(of_tenant(&mut world, 1)), OverloadCause::QueueTokens { .. }));
    assert!(of_tenant(&mut world, 2).is_ok());
    world.drain();
}

/// vllm#40004: with all rows taken a more urgent request could not displace one that runs.
#[test]
fn under_priority_an_urgent_request_takes_the_row_of_a_batch_job() {
    let mut world = World::new(Config { policy: PolicyKind::Priority, max_batch_size: 2, ..roomy() });
    let batch = |world: &mut World| {
        let request = Request { priority: Priority::BATCH, ..Request::new(vec![5; 4], Tokens(30)) };
        world.try_submit(request).expect("it fits")
    };
    let (first, second) = (batch(&mut world), batch(&mut world));
    world.step();
    let urgent = world.submit(4, 2);
    let plan = world.step().expect("somebody runs");
    assert_eq!(plan.admitted[0].request, urgent);
    assert_eq!((world.stories[&first].preemptions, world.stories[&second].preemptions), (0, 1));
    world.drain();
    assert_eq!(world.stories[&second].finished, Some(FinishReason::Length));
}

#[test]
fn under_priority_batch_work_fills_what_the_others_leave() {
    let mut world = World::new(Config { policy: PolicyKind::Priority, max_batch_size: 2, ..roomy() });
    let batch = Request { priority: Priority::BATCH, ..Request::new(vec![5; 4], Tokens(30)) };
    let batch = world.try_submit(batch).expect("it fits");
    world.submit(4, 2);
    let plan = world.step().expect("both enter");
    assert_eq!((plan.admitted.len(), plan.admitted[1].request), (2, batch));
}

/// vllm#41951: a preempted request lost its place.
#[test]
fn under_every_policy_a_preempted_request_comes_before_those_of_its_class_that_never_ran() {
    for policy in [PolicyKind::Fcfs, PolicyKind::Priority, PolicyKind::Fair, PolicyKind::Shortest] {
        let mut world = World::new(Config { policy, max_batch_size: 2, ..super::world::with_blocks(6) });
        let both = [world.submit(4, 20), world.submit(4, 20)];
        let third = world.submit(2, 2);
        world.step_until(|world| both.iter().any(|request| world.stories[request].preemptions > 0));
        let admitted = loop {
            let plan = world.step().expect("somebody runs");
            if let Some(admission) = plan.admitted.first() {
                break admission.request;
            }
        };
        assert_ne!(admitted, third, "{policy:?}");
    }
}

#[test]
fn under_fair_a_tenant_below_its_share_gets_a_row_although_all_are_taken() {
    let mut world = World::new(Config { policy: PolicyKind::Fair, max_batch_size: 4, ..roomy() });
    for _ in 0..8 {
        of_tenant(&mut world, 1).expect("no limit");
    }
    world.step();
    let quiet = of_tenant(&mut world, 2).expect("no limit");
    let steps = (1..5).find(|_| world.step().is_some_and(|plan| plan.admitted.iter().any(|a| a.request == quiet)));
    assert!(steps.is_some_and(|steps| steps <= 2), "{steps:?}");
    world.drain();
}

/// Eight rows, kept by a flood of lower band with answers of 600 tokens; as many of it wait.
fn flooded(policy: PolicyKind, prefix_cache: bool) -> World {
    let mut world = World::new(Config {
        policy,
        prefix_cache,
        block_size: Tokens(16),
        total_blocks: Blocks(512),
        max_batch_prefill_tokens: Tokens(256),
        max_total_tokens: Tokens(1024),
        ..roomy()
    });
    for salt in 1..17 {
        let lower = Priority::new(-1).expect("a band");
        world.try_submit(Request { priority: lower, ..Request::new(vec![salt; 4], Tokens(600)) }).expect("no limit");
    }
    (0..4).for_each(|_| _ = world.step());
    world
}

/// A small request of another tenant comes and ends, and the flood has its row again. Returns the steps that it waited.
fn small_request(world: &mut World) -> u32 {
    let small = Request { tenant: Tenant(1), ..Request::new(vec![40; 4], Tokens(4)) };
    let small = world.try_submit(small).expect("no limit");
    let mut waited = 0;
    while !world.step().expect("somebody runs").admitted.iter().any(|admission| admission.request == small) {
        waited += 1;
    }
    world.step_until(|world| world.stories[&small].finished.is_some());
    (0..3).for_each(|_| _ = world.step());
    assert_eq!(world.scheduler.stats().running, 8);
    waited
}

#[test]
fn who_has_a_right_to_a_row_gets_it_at_once_however_often_where_the_victim_loses_next_to_nothing() {
    for policy in [PolicyKind::Fair, PolicyKind::Priority] {
        let mut world = flooded(policy, true);
        let waited: Vec<u32> = (0..40).map(|_| small_request(&mut world)).collect();
        assert_eq!(waited, [0; 40], "{policy:?}");
    }
}

/// Victims lose all that they computed: they are spared, but not to their end.
#[test]
fn who_has_a_right_to_a_row_waits_until_a_victim_has_got_on_and_not_for_its_end() {
    for policy in [PolicyKind::Fair, PolicyKind::Priority] {
        let mut world = flooded(policy, false);
        let flood = world.unfinished();
        let waited: Vec<u32> = (0..40).map(|_| small_request(&mut world)).collect();
        assert!(waited.iter().all(|&steps| steps <= SPARED_FOR.0), "{policy:?}: {waited:?}");
        let losses = flood.iter().map(|request| &world.stories[request].lost_at);
        assert!(losses.clone().any(|lost_at| lost_at.len() > 3), "{policy:?}");
        for lost_at in losses {
            for pair in lost_at.windows(2).skip(1) {
                let (prompt, got_on) = (4, pair[1] - pair[0]);
                assert!(got_on >= SPARED_FOR.0.min(prompt + pair[0] - 1), "{policy:?}: {lost_at:?}");
            }
        }
    }
}

#[test]
fn under_priority_one_that_entered_by_its_age_gets_on_before_it_gives_way_again() {
    let mut world = World::new(Config { policy: PolicyKind::Priority, max_batch_size: 1, ..with_blocks(256) });
    let batch = Request { priority: Priority::BATCH, ..Request::new(vec![5; 4], Tokens(600)) };
    let batch = world.try_submit(batch).expect("it fits");
    while world.stories[&batch].finished.is_none() {
        if world.scheduler.stats().waiting < 2 {
            world.submit(1, 1);
        }
        world.step();
    }
    let lost_at = &world.stories[&batch].lost_at;
    assert_eq!(*lost_at, [SPARED_FOR.0, 2 * SPARED_FOR.0], "it was never out of turn, for others waited");
}

/// Every second admission takes the lower band's row, and so would every sixteenth, which is the oldest's by its turn.
#[test]
fn under_priority_who_takes_a_row_takes_nobodys_turn() {
    for ahead in [1, 2] {
        let mut world = World::new(Config { policy: PolicyKind::Priority, max_batch_size: 1, ..with_blocks(256) });
        (0..ahead).for_each(|_| _ = world.submit(1, 2));
        world.step();
        let of_band = |world: &mut World, band: i64| {
            let priority = Priority::new(band).expect("a band");
            world.try_submit(Request { priority, ..Request::new(vec![5; 4], Tokens(900)) }).expect("it fits")
        };
        let (batch, lower) = (of_band(&mut world, -100), of_band(&mut world, -1));
        let mut steps = 0;
        while world.stories[&batch].answer.is_empty() {
            let handle = world.scheduler.sequences.find(lower).expect("it has not ended");
            if world.scheduler.sequences[handle].is_running() && world.unfinished().len() == 2 {
                world.submit(1, 1);
            }
            world.step();
            steps += 1;
            assert!(steps < 200, "the batch class starves behind {ahead}");
        }
    }
}
