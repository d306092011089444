//! What runs when.

use std::time::Duration;

use crate::world::{Setup, World, read, token};
use headrace_engine::{Generation, Recovery};
use tokio::time::{Instant, sleep};

const STEP: Duration = Duration::from_millis(30);

/// A newcomer that arrives 25 ms before the end of the step under way has its token when the step after that ends: the
/// next step had not been queued yet.
async fn assert_newcomer_joins_the_next_step(world: &World, running: &mut Generation) {
    for _ in 0..10 {
        token(running).await; // By now step times are known.
    }
    sleep(Duration::from_millis(5)).await;
    let came = Instant::now();
    let mut newcomer = world.generate("new", 5).await;
    token(&mut newcomer).await;
    let waited = came.elapsed();
    assert!(waited > STEP && waited < Duration::from_millis(25) + STEP + Duration::from_millis(5), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_is_in_the_next_step() {
    let world = World::new().await;
    let mut running = world.generate("long", 100).await;
    assert_newcomer_joins_the_next_step(&world, &mut running).await;
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_is_in_the_next_step_also_of_a_new_session() {
    let recovery = Recovery::Reopen { attempts: 1, delay: Duration::ZERO };
    let world = Setup { recovery, ..Setup::default() }.start().await;
    let mut running = world.generate("long", 100).await;
    token(&mut running).await;
    world.handle.end_session();
    assert_newcomer_joins_the_next_step(&world, &mut running).await;
}

#[tokio::test(start_paused = true)]
async fn the_next_step_is_sent_before_the_result_of_the_one_under_way() {
    let world = World::new().await;
    let mut generation = world.generate("hello", 100).await;
    for _ in 0..10 {
        token(&mut generation).await;
    }
    sleep(Duration::from_millis(20)).await;
    assert_eq!(world.engine.snapshot().steps_in_flight, 1, "too early: a newcomer could not join");
    sleep(Duration::from_millis(9)).await;
    assert_eq!(world.engine.snapshot().steps_in_flight, 2);
    assert!(generation.try_next().is_none(), "the result is not there yet");
}

#[tokio::test(start_paused = true)]
async fn before_step_times_are_known_two_steps_are_sent_at_once() {
    let world = World::new().await;
    world.handle.stall();
    let _generation = world.generate("hello", 100).await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.engine.snapshot().steps_in_flight, 2);
}

#[tokio::test(start_paused = true)]
async fn steps_follow_one_another_without_a_gap() {
    let world = World::new().await;
    let mut generation = world.generate("hello", 100).await;
    token(&mut generation).await;
    let began = Instant::now();
    for _ in 0..50 {
        token(&mut generation).await;
    }
    assert!(began.elapsed() < 50 * STEP + STEP / 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_short_request_ends_before_a_long_one_that_began_earlier() {
    let world = World::new().await;
    let long = tokio::spawn(read(world.generate("long", 200).await));
    sleep(Duration::from_millis(300)).await;
    let said = read(world.generate("short", 3).await).await;
    assert_eq!(said.ids(), world.expected("short", 3));
    assert!(!long.is_finished());
    assert_eq!(long.await.expect("reads").ids(), world.expected("long", 200));
}
