//! Readers that leave or fall behind, and engines that are told to stop.

use std::time::Duration;

use crate::world::{Setup, World, read, request, token};
use headrace_engine::{EngineState, EngineStopped, GenerationError};
use headrace_scheduler::{Blocks, Tokens};
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_while_it_waits_leaves_nothing_behind() {
    let world = Setup { max_batch_size: 1, ..Setup::default() }.start().await;
    let running = world.generate("running", 20).await;
    let waiting = world.generate("waiting", 20).await;
    assert_eq!(world.engine.snapshot().waiting, 1);
    drop(waiting);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.engine.snapshot().waiting, 0);
    assert_eq!(read(running).await.ids(), world.expected("running", 20));
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_in_the_middle_of_its_prompt_frees_its_blocks() {
    let world = Setup { max_batch_prefill_tokens: Tokens(4), ..Setup::default() }.start().await;
    let generation = world.generate("a prompt of many chunks", 20).await;
    sleep(Duration::from_millis(70)).await;
    assert!(world.engine.snapshot().blocks_held > Blocks(0));
    drop(generation);
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_while_its_answer_grows_frees_its_blocks() {
    let world = World::new().await;
    let mut generation = world.generate("hello", 1000).await;
    for _ in 0..5 {
        token(&mut generation).await;
    }
    drop(generation);
    // Two steps at most: those in flight.
    timeout(Duration::from_millis(61), world.assert_idle_and_empty()).await.expect("at once");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_before_it_has_a_generation_leaves_nothing_behind() {
    let world = World::new().await;
    // Polled once: the command is on its way, and nobody waits for the reply.
    let polled = timeout(Duration::ZERO, world.engine.generate(request("hello", 1000))).await;
    assert!(polled.is_err());
    sleep(Duration::from_millis(1)).await;
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_readers_that_leave_together_are_all_noticed() {
    let world = Setup { max_batch_size: 8, ..Setup::default() }.start().await;
    let mut generations = Vec::new();
    for n in 0..1000 {
        generations.push(world.generate(&format!("prompt {n}"), 50).await);
    }
    drop(generations);
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_too_slow_is_cancelled_and_told_so_and_holds_nobody_back() {
    let world = Setup { stream_buffer: 8, ..Setup::default() }.start().await;
    let slow = world.generate("slow", 1000).await;
    let other = read(world.generate("other", 30).await).await;
    assert_eq!(other.ids(), world.expected("other", 30));
    world.assert_idle_and_empty().await;
    let said = read(slow).await;
    assert_eq!(said.ids(), world.expected("slow", 8));
    assert!(matches!(said.error, Some(GenerationError::SlowReader { unread: 8 })), "{:?}", said.error);
}

#[tokio::test(start_paused = true)]
async fn a_reader_may_leave_a_whole_answer_unread_if_it_fits_the_buffer() {
    let world = Setup { stream_buffer: 8, ..Setup::default() }.start().await;
    let generation = world.generate("hello", 9).await;
    world.assert_idle_and_empty().await;
    assert_eq!(read(generation).await.ids(), world.expected("hello", 9));
}

#[tokio::test(start_paused = true)]
async fn a_draining_engine_finishes_what_runs_and_takes_nothing_new() {
    let world = World::new().await;
    let running = world.generate("running", 20).await;
    world.engine.drain();
    assert_eq!(world.engine.state(), EngineState::Draining);
    let refused = world.engine.generate(request("new", 5)).await.expect_err("refused");
    assert!(matches!(refused, GenerationError::ShuttingDown), "{refused:?}");
    let said = tokio::spawn(read(running));
    world.engine.idle().await;
    assert_eq!(said.await.expect("reads").ids(), world.expected("running", 20));
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_is_idle_at_once() {
    World::new().await.engine.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_nobody_holds_finishes_what_runs_and_stops() {
    let world = World::new().await;
    let generation = world.generate("hello", 10).await;
    let expected = world.expected("hello", 10);
    drop(world.engine);
    assert_eq!(read(generation).await.ids(), expected);
    assert_eq!(world.task.await, EngineStopped::Unused);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_closed_cuts_off_what_runs_and_waits_and_ends() {
    let world = Setup { max_batch_size: 1, ..Setup::default() }.start().await;
    let mut running = world.generate("running", 1000).await;
    token(&mut running).await;
    let waiting = world.generate("waiting", 5).await;
    assert_eq!(world.engine.close().await, 2);
    for generation in [running, waiting] {
        let said = read(generation).await;
        assert!(matches!(said.error, Some(GenerationError::CutOff)), "{:?}", said.error);
    }
    assert_eq!(world.task.await, EngineStopped::Closed);
    // Nobody is told that the shard died.
    let refused = world.engine.generate(request("new", 5)).await.expect_err("refused");
    assert!(matches!(refused, GenerationError::ShuttingDown), "{refused:?}");
    assert_eq!(world.engine.close().await, 0);
    world.engine.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_drains_is_not_healthy() {
    let world = World::new().await;
    world.engine.healthy().await.expect("it serves");
    world.engine.drain();
    assert!(world.engine.healthy().await.expect_err("it drains").contains("shutting down"));
}
