//! What is known of the engine and its shard before anybody asks.

use std::time::Duration;

use headrace_engine::{EngineState, Recovery};
use tokio::time::{sleep, timeout};

use crate::world::{Setup, World};

/// Longer than from one question to the next.
const A_WHILE: Duration = Duration::from_millis(1500);

#[tokio::test(start_paused = true)]
async fn an_engine_that_does_nothing_for_an_hour_is_alive_and_ready() {
    let world = World::new().await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((world.engine.alive(), world.engine.ready()), (Ok(()), Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_takes_for_ever_is_no_reason_to_be_restarted() {
    let world = World::new().await;
    world.handle.stall();
    let _running = world.generate("hello", 5).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((world.engine.alive(), world.engine.ready()), (Ok(()), Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_gone_makes_it_unready_until_there_is_a_new_one() {
    let recovery = Recovery::Reopen { attempts: 1000, delay: Duration::from_millis(100) };
    let world = Setup { recovery, ..Setup::default() }.start().await;
    world.handle.die();
    sleep(A_WHILE).await;
    assert_eq!(world.engine.alive(), Ok(()));
    assert!(world.engine.ready().is_err());
    world.handle.come_back();
    sleep(A_WHILE).await;
    assert_eq!((world.engine.state(), world.engine.ready()), (EngineState::Serving, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_drains_is_alive_and_not_ready() {
    let world = World::new().await;
    world.engine.drain();
    assert_eq!(world.engine.alive(), Ok(()));
    assert!(world.engine.ready().expect_err("drains").contains("shutting down"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_lost_its_shard_for_good_is_not_alive() {
    let mut world = World::new().await;
    world.handle.die();
    (&mut world.task).await;
    assert!(world.engine.alive().is_err() && world.engine.ready().is_err());
}

#[tokio::test(start_paused = true)]
async fn asking_does_not_keep_an_engine_that_nobody_uses() {
    let World { engine, task, .. } = World::new().await;
    sleep(A_WHILE).await;
    drop(engine);
    timeout(Duration::from_secs(60), task).await.expect("it ends");
}
