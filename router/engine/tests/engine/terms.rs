//! Deadlines, tenants, collected batches and shared prefixes: what requests and policies ask of the engine.

use std::time::Duration;

use crate::world::{BLOCK, Setup, World, read, request, token};
use headrace_engine::{GenerationError, GenerationRequest, Terms};
use headrace_scheduler::{CacheRoot, Micros, OverloadCause, PolicyKind, Rejected, Tokens};
use tokio::time::{Instant, sleep, timeout};

const STEP: Duration = Duration::from_millis(30);

fn with_terms(prompt: &str, max_new: u32, terms: Terms) -> GenerationRequest {
    GenerationRequest { terms, ..request(prompt, max_new) }
}

fn of_tenant(name: &str) -> Terms {
    Terms { tenant: Some(name.into()), ..Terms::default() }
}

fn within(time: Duration) -> Terms {
    Terms { deadline: Some(Instant::now() + time), ..Terms::default() }
}

fn salted(salt: &str) -> Terms {
    Terms { cache_root: CacheRoot { salt: Some(salt.into()), ..CacheRoot::default() }, ..Terms::default() }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_passes_on_time_also_while_two_steps_are_in_flight() {
    let world = Setup { max_batch_size: 1, ..Setup::default() }.start().await;
    world.handle.stall();
    let _running = world.generate("running", 20).await;
    let began = Instant::now();
    let late = world.engine.generate(with_terms("late", 5, within(Duration::from_millis(70)))).await.expect("taken");
    let said = timeout(Duration::from_millis(75), read(late)).await.expect("told at its deadline");
    assert!(matches!(said.error, Some(GenerationError::DeadlineMissed { .. })), "{:?}", said.error);
    assert!(began.elapsed() >= Duration::from_millis(70));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_between_two_steps_passes_before_the_next_one_ends() {
    let world = Setup { max_batch_size: 1, ..Setup::default() }.start().await;
    let mut running = world.generate("running", 100).await;
    for _ in 0..10 {
        token(&mut running).await;
    }
    let late = world.engine.generate(with_terms("late", 5, within(Duration::from_millis(40)))).await.expect("taken");
    let said = timeout(Duration::from_millis(40) + STEP, read(late)).await.expect("told within a step");
    assert!(matches!(said.error, Some(GenerationError::DeadlineMissed { .. })), "{:?}", said.error);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_runs_has_no_deadline_any_more() {
    let world = World::new().await;
    let generation = world.engine.generate(with_terms("hello", 10, within(STEP))).await.expect("taken");
    assert_eq!(read(generation).await.ids(), world.expected("hello", 10));
}

#[tokio::test(start_paused = true)]
async fn a_collected_batch_starts_when_its_window_is_over() {
    let policy = PolicyKind::Dynamic { window: Micros(100_000) };
    let world = Setup { policy, ..Setup::default() }.start().await;
    let began = Instant::now();
    let mut first = world.generate("first", 5).await;
    sleep(Duration::from_millis(60)).await;
    let mut second = world.generate("second", 5).await;
    token(&mut first).await;
    token(&mut second).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(130) && took < Duration::from_millis(135), "{took:?}");
}

/// A driver that asked again and again would never let the paused time go on.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_due_while_two_steps_are_in_flight_waits_for_them_without_spinning() {
    let policy = PolicyKind::Dynamic { window: Micros(10_000) };
    let world = Setup { policy, ..Setup::default() }.start().await;
    let gone = world.generate("gone", 20).await;
    world.handle.stall();
    sleep(Duration::from_millis(15)).await;
    assert_eq!(world.engine.snapshot().steps_in_flight, 2);
    let waiting = world.generate("waiting", 3).await;
    drop(gone);
    sleep(Duration::from_millis(200)).await;
    world.handle.resume();
    assert_eq!(read(waiting).await.ids(), world.expected("waiting", 3));
}

#[tokio::test(start_paused = true)]
async fn an_equal_beginning_is_computed_once_and_the_answer_says_so() {
    let world = World::new().await;
    let first = read(world.generate("a beginning that both have", 5).await).await;
    assert_eq!(first.finished().cached, Tokens(0));
    let second = read(world.generate("a beginning that both have and more", 5).await).await;
    // 26 tokens: six whole blocks, and two tokens more that the first answer went on from in other ways.
    assert_eq!(second.finished().cached, Tokens(6 * BLOCK.0));
    assert_eq!(second.ids(), world.expected("a beginning that both have and more", 5));
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn cached_tokens_are_those_of_the_first_time_a_preempted_request_ran() {
    let world = Setup { preempt_once_seed: Some(7), ..Setup::default() }.start().await;
    let said = read(world.generate("nobody computed this before", 20).await).await;
    assert_eq!(said.finished().cached, Tokens(0));
    assert_eq!(said.ids(), world.expected("nobody computed this before", 20));
}

#[tokio::test(start_paused = true)]
async fn requests_with_different_salts_share_nothing() {
    let world = World::new().await;
    let ask = async |terms: Terms| {
        let request = with_terms("a beginning that all have", 3, terms);
        read(world.engine.generate(request).await.expect("taken")).await.finished().cached
    };
    assert_eq!(ask(salted("a")).await, Tokens(0));
    assert_eq!(ask(salted("b")).await, Tokens(0));
    assert_eq!(ask(Terms::default()).await, Tokens(0));
    assert!(ask(salted("a")).await > Tokens(0));
}

#[tokio::test(start_paused = true)]
async fn under_fair_a_small_tenant_takes_the_place_of_the_newest_request_of_a_flood() {
    let setup =
        Setup { max_batch_size: 2, max_concurrent_requests: Some(8), policy: PolicyKind::Fair, ..Setup::default() };
    let world = setup.start().await;
    let mut flood = Vec::new();
    for n in 0..8 {
        let request = with_terms(&format!("flood {n}"), 10, of_tenant("a"));
        flood.push(world.engine.generate(request).await.expect("taken"));
    }
    let refused = world.engine.generate(with_terms("one more", 10, of_tenant("a"))).await;
    assert!(matches!(refused, Err(GenerationError::Rejected(Rejected::Overloaded(_)))), "{refused:?}");
    let small = world.engine.generate(with_terms("small", 10, of_tenant("b"))).await.expect("below its share");
    let newest = read(flood.pop().expect("eight")).await;
    match newest.error {
        Some(GenerationError::Rejected(Rejected::Overloaded(overload))) => {
            assert_eq!(overload.cause, OverloadCause::Displaced);
            assert!(overload.retry_after.whole_seconds() >= 1);
        }
        other => panic!("not displaced: {other:?}"),
    }
    assert_eq!(read(small).await.ids(), world.expected("small", 10));
    for (n, generation) in flood.into_iter().enumerate() {
        assert_eq!(read(generation).await.ids(), world.expected(&format!("flood {n}"), 10));
    }
    world.assert_idle_and_empty().await;
}
