//! Rows, steps, sessions and shards that fail.

use std::time::Duration;

use crate::world::{Setup, World, read, request, token};
use headrace_engine::{EngineState, EngineStopped, GenerationError, Recovery};
use headrace_scheduler::{Blocks, Row, Tokens};
use tokio::time::{sleep, timeout};

const REOPEN: Recovery = Recovery::Reopen { attempts: 3, delay: Duration::from_millis(100) };
const PATIENT: Recovery = Recovery::Reopen { attempts: 1000, delay: Duration::from_millis(100) };

#[tokio::test(start_paused = true)]
async fn a_row_that_fails_fails_alone() {
    let world = World::new().await;
    let mut first = world.generate("first", 20).await;
    token(&mut first).await; // It holds row 0.
    let second = tokio::spawn(read(world.generate("second", 20).await));
    world.handle.fail_row(Row(0));
    let said = read(first).await;
    assert!(matches!(&said.error, Some(GenerationError::Shard(why)) if why.contains("rank 0")), "{said:?}");
    assert_eq!(second.await.expect("reads").ids(), world.expected("second", 20));
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_fails_those_in_it_and_nobody_else() {
    let world = Setup { max_batch_size: 2, ..Setup::default() }.start().await;
    let running = [world.generate("one", 20).await, world.generate("two", 20).await];
    let waiting = world.generate("three", 20).await;
    world.handle.fail_next_step();
    for generation in running {
        let said = read(generation).await;
        assert!(matches!(&said.error, Some(GenerationError::Shard(why)) if why.contains("rank 0")), "{said:?}");
    }
    assert_eq!(read(waiting).await.ids(), world.expected("three", 20));
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_notices_a_step_that_lacked_memory() {
    let world = World::new().await;
    let mut first = world.generate("first", 20).await;
    token(&mut first).await;
    let others = ["second", "third"].map(|prompt| (prompt, world.generate(prompt, 20)));
    let mut readers = vec![("first", tokio::spawn(read(first)))];
    for (prompt, generation) in others {
        readers.push((prompt, tokio::spawn(read(generation.await))));
    }
    world.handle.next_step_lacks_memory();
    for (prompt, reader) in readers {
        let (said, expected) = (reader.await.expect("reads"), world.expected(prompt, 20));
        let ids = said.ids();
        assert!(said.error.is_none(), "{said:?}");
        assert!(expected.ends_with(&ids) && ids.len() + usize::from(prompt == "first") == expected.len(), "{said:?}");
    }
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_also_fails_a_prompt_that_it_only_went_on_with() {
    let world = Setup { max_batch_prefill_tokens: Tokens(4), ..Setup::default() }.start().await;
    world.handle.fail_next_step();
    let generation = world.generate("a prompt of many chunks", 20).await;
    // When that step lands after 30 ms, not with the row's next step or the one that would have sampled.
    let said = timeout(Duration::from_millis(45), read(generation)).await.expect("at once");
    assert!(matches!(&said.error, Some(GenerationError::Shard(why)) if why.contains("rank 0")), "{said:?}");
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn when_the_session_is_lost_every_stream_goes_on_exactly() {
    let setup = Setup { blocks: Blocks(60), max_batch_size: 8, recovery: REOPEN, ..Setup::default() };
    let world = setup.start().await;
    let mut readers = Vec::new();
    for n in 0..30_u32 {
        let (prompt, max_new) = (format!("prompt {n}"), 10 + n);
        let generation = world.generate(&prompt, max_new).await;
        readers.push((world.expected(&prompt, max_new), tokio::spawn(read(generation))));
    }
    // Waiting, prefilling, decoding, two steps in flight: whatever state they are in.
    for pause in [5, 47, 101, 250, 29] {
        sleep(Duration::from_millis(pause)).await;
        world.handle.end_session();
    }
    for (expected, reader) in readers {
        let said = reader.await.expect("reads");
        assert_eq!(said.ids(), expected);
        assert_eq!(said.finished().text, said.event_text());
    }
    assert!(world.handle.sessions() >= 11, "five sessions ended: {}", world.handle.sessions());
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_can_leave_while_no_session_is_open() {
    let world = Setup { recovery: PATIENT, ..Setup::default() };
    let world = world.start().await;
    let mut generation = world.generate("hello", 50).await;
    token(&mut generation).await;
    world.handle.die();
    sleep(Duration::from_millis(500)).await;
    assert!(world.engine.state() == EngineState::Serving);
    drop(generation);
    timeout(Duration::from_millis(10), world.assert_idle_and_empty()).await.expect("at once");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_finds_no_new_session_stops_and_names_the_rank() {
    let world = Setup { recovery: REOPEN, ..Setup::default() }.start().await;
    let generation = world.generate("hello", 50).await;
    world.handle.die();
    let said = read(generation).await;
    assert!(matches!(&said.error, Some(GenerationError::ShardDied(why)) if why.contains("rank 0")), "{said:?}");
    assert!(matches!(world.task.await, EngineStopped::ShardDied(_)));
}

#[tokio::test(start_paused = true)]
async fn without_recovery_the_death_of_the_shard_fails_everybody_and_stops_the_engine() {
    let world = Setup { max_batch_size: 2, ..Setup::default() }.start().await;
    let mut generations = Vec::new();
    for n in 0..5 {
        generations.push(world.generate(&format!("prompt {n}"), 50).await);
    }
    sleep(Duration::from_millis(100)).await;
    world.handle.die();
    for generation in generations {
        let said = read(generation).await;
        assert!(matches!(&said.error, Some(GenerationError::ShardDied(why)) if why.contains("rank 0")), "{said:?}");
    }
    let EngineStopped::ShardDied(why) = world.task.await else { panic!("the shard died") };
    let why = why.to_string();
    assert!(why.contains("rank 0"), "{why}");
    assert_eq!(world.engine.state(), EngineState::Dead(why.clone()));
    let refused = world.engine.generate(request("late", 5)).await.expect_err("dead");
    assert!(refused.to_string().starts_with(&format!("the shard died: {why}; the request cannot")), "{refused}");
    world.engine.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_dies_while_nothing_runs_is_noticed() {
    let world = World::new().await;
    world.handle.die();
    assert!(matches!(world.task.await, EngineStopped::ShardDied(_)));
    assert!(world.engine.healthy().await.expect_err("dead").contains("rank 0"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_in_a_long_step_is_healthy() {
    let world = World::new().await;
    world.engine.healthy().await.expect("idle and healthy");
    world.handle.stall();
    let _generation = world.generate("hello", 50).await;
    timeout(Duration::from_millis(10), world.engine.healthy()).await.expect("at once").expect("healthy");
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_shard_does_not_answer_is_not_healthy() {
    let world = Setup { recovery: PATIENT, ..Setup::default() };
    let world = world.start().await;
    world.handle.die();
    let unhealthy = world.engine.healthy().await.expect_err("dead");
    assert!(unhealthy.contains("rank 0"), "{unhealthy}");
}
