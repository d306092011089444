//! Several ranks as one worker: same messages, rank 0's answer, and whose fault it is.

use std::time::Duration;

use crate::plans::{decode, prefill};
use crate::{connect_to, connected, deadlines, hold_answers, open};
use futures::FutureExt;
use headrace_scheduler::{Epoch, Row};
use headrace_shard::{Deadlines, LogicalShard, MAX_STEPS_IN_FLIGHT, Sampling, ShardError, proto};
use tonic::Status;

#[tokio::test]
async fn every_rank_receives_the_same_messages() {
    let (mut shards, mut session) = open(3).await;
    session.send_step(&prefill(1, 0, 1, &[5, 6]), &[Sampling { seed: 9, ..Sampling::greedy() }]).unwrap();
    session.send_step(&decode(2, &[(0, 2)]), &[]).unwrap();
    session.send_filter(&[(Row(0), Epoch(1))]).unwrap();
    let mut received = vec![];
    for shard in &mut shards {
        let mut messages = vec![];
        for _ in 0..3 {
            let waiting = shard.message().await;
            messages.push((waiting.sequence(), waiting.message));
        }
        messages.sort_by_key(|(sequence, _)| *sequence);
        received.push(messages);
    }
    assert_eq!(received[0], received[1]);
    assert_eq!(received[0], received[2]);
}

#[tokio::test]
async fn a_step_is_complete_when_every_rank_answered_and_its_tokens_are_rank_0s() {
    let (mut shards, mut session) = open(3).await;
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    for (rank, token) in [(0, 10), (2, 12)] {
        shards[rank].sample(&[token]).await;
    }
    hold_answers(&mut session, 2).await;
    shards[1].sample(&[]).await; // only rank 0 need report tokens
    assert_eq!(session.next_result().await.unwrap().samples[0].token, 10);
}

#[tokio::test]
async fn a_step_that_fails_on_one_rank_fails_with_its_name() {
    let (mut shards, mut session) = open(3).await;
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    for (rank, shard) in shards.iter_mut().enumerate() {
        let waiting = shard.message().await;
        let error = (rank == 2).then(|| "out of memory".to_owned());
        waiting.answer(proto::StepResult { error, ..waiting.result(&[10]) });
    }
    let result = session.next_result().await.unwrap();
    let error = result.error.expect("it failed");
    assert_eq!(
        (error.sentence.as_str(), error.out_of_memory, result.samples.len()),
        ("rank 2: out of memory", false, 0)
    );
}

#[tokio::test]
async fn memory_is_what_a_step_lacked_if_no_rank_that_failed_says_otherwise() {
    for (others, lacked) in [(Some("out of memory"), true), (Some("a bug"), false)] {
        let (mut shards, mut session) = open(2).await;
        session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
        for (rank, shard) in shards.iter_mut().enumerate() {
            let waiting = shard.message().await;
            let error = if rank == 0 { Some("out of memory") } else { others }.map(str::to_owned);
            let out_of_memory = error.as_deref() == Some("out of memory");
            waiting.answer(proto::StepResult { error, out_of_memory, ..waiting.result(&[]) });
        }
        let error = session.next_result().await.unwrap().error.expect("it failed");
        assert_eq!(error.out_of_memory, lacked);
    }
}

#[tokio::test]
async fn a_row_that_fails_on_any_rank_has_failed_and_its_token_counts_for_nothing() {
    let (mut shards, mut session) = open(3).await;
    session.send_step(&decode(1, &[(0, 3), (1, 3)]), &[]).unwrap();
    for (rank, shard) in shards.iter_mut().enumerate() {
        let waiting = shard.message().await;
        let errors = if rank == 0 { vec![] } else { vec![proto::RowError { row: 1, message: "overflow".into() }] };
        waiting.answer(proto::StepResult { row_errors: errors, ..waiting.result(&[10, 11]) });
    }
    let result = session.next_result().await.unwrap();
    assert_eq!(result.row_errors, [(Row(1), "rank 1: overflow".into())], "once, though two ranks say it");
    assert_eq!((result.samples[0].token, result.samples[1].token), (10, 0));
}

#[tokio::test]
async fn the_death_of_rank_2_in_a_step_ends_the_session_with_its_name() {
    let (mut shards, mut session) = open(3).await;
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    for shard in &mut shards[..2] {
        shard.sample(&[10]).await;
    }
    shards[2].message().await;
    shards[2].die();
    let error = session.next_result().await.unwrap_err();
    assert_eq!(error.to_string(), "rank 2 is gone");
    assert_eq!(session.send_step(&decode(2, &[(0, 4)]), &[]), Err(error.clone()));
    assert_eq!(session.send_filter(&[(Row(0), Epoch(1))]), Err(error));
}

#[tokio::test]
async fn the_death_of_an_idle_rank_is_noticed_without_a_step() {
    let (mut shards, mut session) = open(2).await;
    shards[1].die();
    let error = session.next_result().await.unwrap_err();
    assert_eq!(error, ShardError::Gone { rank: 1 });
}

/// Which of the two notices first, the sender or the reader, is chance.
#[tokio::test]
async fn a_message_to_a_rank_that_is_gone_fails_with_its_name() {
    let (mut shards, mut session) = open(2).await;
    shards[1].die();
    for step in 1.. {
        match session.send_step(&decode(step, &[(0, 2)]), &[]) {
            Ok(()) => shards[0].sample(&[10]).await,
            Err(error) => return assert_eq!(error, ShardError::Gone { rank: 1 }),
        }
        if step as usize == MAX_STEPS_IN_FLIGHT {
            return assert_eq!(session.next_result().await, Err(ShardError::Gone { rank: 1 }));
        }
    }
}

#[tokio::test]
async fn a_stream_that_a_rank_breaks_ends_the_session_with_its_words() {
    let (mut shards, mut session) = open(2).await;
    session.send_filter(&[(Row(0), Epoch(1))]).unwrap();
    shards[0].message().await.done();
    shards[1].message().await.fail(Status::internal("the model thread died"));
    let error = session.next_result().await.unwrap_err();
    assert_eq!(error.to_string(), "the session with rank 1 ended: its Filter stream broke: the model thread died");
}

/// A session of 3 ranks, one of which answers a step in time while the others say this of themselves, if anything, when
/// they are asked.
async fn overdue(signs: [Option<bool>; 2]) -> ShardError {
    let (mut shards, _) = connected(3).await;
    let addresses: Vec<_> = shards.iter().map(|shard| shard.address.clone()).collect();
    let hurry = Deadlines { step: Duration::from_millis(1), health: Duration::from_millis(500), ..deadlines() };
    let logical = LogicalShard::connect(&addresses, hurry, |_| ()).await.unwrap();
    for (shard, waits_for_ranks) in shards[1..].iter().zip(signs) {
        let health =
            waits_for_ranks.map(|waits_for_ranks| proto::HealthResponse { waits_for_ranks, ..Default::default() });
        shard.settings.change(|unary| unary.health = health);
    }
    let mut session = logical.open_session().await.unwrap();
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    shards[0].sample(&[10]).await;
    session.next_result().await.unwrap_err()
}

#[tokio::test]
async fn a_rank_that_says_nothing_is_the_one_that_hangs() {
    let error = overdue([Some(false), None]).await;
    let sentence = "rank 2 did not answer a step within 1ms (--step-timeout), nor whether it is alive";
    assert_eq!(error.to_string(), sentence);
}

#[tokio::test]
async fn a_rank_that_works_while_the_others_wait_is_the_one_that_hangs() {
    let error = overdue([Some(false), Some(true)]).await;
    assert_eq!(error.to_string(), "rank 1 did not answer a step within 1ms (--step-timeout)");
}

#[tokio::test]
async fn where_nobody_is_known_to_wait_all_that_have_not_answered_are_named() {
    let error = overdue([Some(false), Some(false)]).await;
    assert_eq!(error.to_string(), "ranks 1 and 2 did not answer a step within 1ms (--step-timeout)");
}

#[tokio::test]
async fn an_answer_that_comes_while_ranks_are_asked_is_not_too_late() {
    let (mut shards, _) = connected(1).await;
    let hurry = Deadlines { step: Duration::from_millis(1), ..deadlines() };
    let logical = LogicalShard::connect(&[shards[0].address.clone()], hurry, |_| ()).await.unwrap();
    shards[0].settings.change(|unary| unary.health = None);
    let mut session = logical.open_session().await.unwrap();
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    let waiting = shards[0].message().await;
    while !format!("{session:?}").contains("Some(Inquiry") {
        assert!(session.next_result().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    waiting.answer(waiting.result(&[10]));
    assert_eq!(session.next_result().await.unwrap().samples[0].token, 10);
}

#[tokio::test]
async fn an_idle_session_never_times_out() {
    let (mut shards, mut session) = open(1).await;
    tokio::time::pause();
    let hour = std::time::Duration::from_secs(3600);
    assert!(tokio::time::timeout(hour, session.next_result()).await.is_err(), "nothing to answer");
    tokio::time::resume();
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    shards[0].sample(&[10]).await;
    assert!(session.next_result().await.is_ok(), "a step's time begins when it is sent");
}

#[tokio::test]
async fn a_new_session_opens_after_an_old_one_broke() {
    let (mut shards, logical) = connected(2).await;
    let mut session = logical.open_session().await.unwrap();
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    shards[1].message().await.fail(Status::aborted("restart"));
    assert!(session.next_result().await.is_err());

    let mut session = logical.open_session().await.unwrap();
    session.send_step(&prefill(2, 0, 1, &[5]), &[Sampling::greedy()]).unwrap();
    shards[0].message().await; // the old session's step
    for shard in &mut shards {
        let waiting = shard.message().await;
        assert_eq!((waiting.sequence(), waiting.step()), (1, 2), "a session counts its messages from 1");
        waiting.answer(waiting.result(&[11]));
    }
    assert_eq!(session.next_result().await.unwrap().samples[0].token, 11);
}

#[tokio::test]
async fn dropping_a_session_ends_its_streams_at_the_shard() {
    let (mut shards, logical) = connected(1).await;
    let mut session = logical.open_session().await.unwrap();
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    let waiting = shards[0].message().await;
    drop(session);
    waiting.closed().await;
    assert!(connect_to(&shards).await.is_ok());
}
