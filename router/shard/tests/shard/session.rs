//! One rank's session over real streams: order, metadata, what answers must hold.

use crate::plans::{With, decode, plan, prefill};
use crate::test_shard::{Arrival, Message, TestShard, info, packed, packed_f32};
use crate::{connect_to, hold_answers, open};
use futures::FutureExt;
use headrace_scheduler::{BlockCopy, BlockId, Epoch, RequestId, Row, StepId};
use headrace_shard::{MAX_FILTERS_IN_FLIGHT, MAX_STEPS_IN_FLIGHT, Sampling, Session, ShardError, proto};

fn asking() -> Sampling {
    Sampling { logprobs: true, top_n: 2, ..Sampling::greedy() }
}

async fn protocol_error(session: &mut Session) -> String {
    match session.next_result().await {
        Err(ShardError::Protocol { rank: 0, reason }) => reason,
        other => panic!("no protocol error of rank 0: {other:?}"),
    }
}

#[tokio::test]
async fn three_streams_open_with_one_session_number_that_is_drawn_anew() {
    let mut shard = TestShard::on_unix(info(0, 1));
    let logical = connect_to(std::slice::from_ref(&shard)).await.unwrap();
    let mut numbers = vec![];
    for _ in 0..2 {
        let _session = logical.open_session().await.unwrap();
        let mut streams = vec![];
        for _ in 0..3 {
            let Arrival::Opened { stream, session } = shard.arrival().await else { panic!("a message") };
            streams.push(stream);
            numbers.push(session.parse::<u64>().unwrap());
        }
        streams.sort_unstable();
        assert_eq!(streams, ["Decode", "Filter", "Prefill"]);
    }
    assert!(numbers[..3].iter().all(|number| *number == numbers[0]));
    assert!(numbers[3..].iter().all(|number| *number == numbers[3] && *number != numbers[0]));
}

#[tokio::test]
async fn messages_of_all_streams_share_one_sequence_and_steps_their_own() {
    let (mut shards, mut session) = open(1).await;
    session.send_step(&prefill(1, 0, 1, &[5, 6]), &[Sampling::greedy()]).unwrap();
    session.send_step(&decode(2, &[(0, 2)]), &[]).unwrap();
    session.send_filter(&[(Row(0), Epoch(1))]).unwrap();
    session.send_filter(&[]).unwrap(); // nothing to say, nothing sent
    session.send_step(&prefill(3, 0, 2, &[7]), &[Sampling::greedy()]).unwrap();

    let mut seen = vec![];
    for _ in 0..4 {
        let waiting = shards[0].message().await;
        let step = (waiting.stream != "Filter").then(|| waiting.step());
        seen.push((waiting.sequence(), waiting.stream, step));
    }
    seen.sort_unstable();
    let expected = [(1, "Prefill", Some(1)), (2, "Decode", Some(2)), (3, "Filter", None), (4, "Prefill", Some(3))];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn results_come_in_step_order_whichever_stream_answers_first() {
    let (mut shards, mut session) = open(1).await;
    session.send_step(&prefill(1, 0, 1, &[5, 6]), &[Sampling::greedy()]).unwrap();
    session.send_filter(&[(Row(7), Epoch(1))]).unwrap();
    session.send_step(&decode(2, &[(0, 2)]), &[]).unwrap();

    let (mut first, mut second) = (None, None);
    for _ in 0..3 {
        let waiting = shards[0].message().await;
        match waiting.stream {
            "Prefill" => first = Some(waiting),
            "Decode" => second = Some(waiting),
            _ => waiting.done(),
        }
    }
    let (first, second) = (first.unwrap(), second.unwrap());
    second.answer(second.result(&[20]));
    hold_answers(&mut session, 1).await;
    first.answer(first.result(&[10]));
    for (step, token) in [(1, 10), (2, 20)] {
        let result = session.next_result().await.unwrap();
        assert_eq!((result.step, result.samples[0].token), (StepId(step), token));
    }
}

#[tokio::test]
async fn a_dropped_next_result_loses_nothing() {
    let (mut shards, mut session) = open(1).await;
    for step in 1..=20 {
        let row = (step % 4) as u32;
        session.send_step(&prefill(step, row, step, &[5]), &[Sampling::greedy()]).unwrap();
        assert!(session.next_result().now_or_never().is_none(), "nothing has answered yet");
        shards[0].sample(&[step as u32]).await;
        let result = loop {
            // Dropped at every await until the result is there.
            match session.next_result().now_or_never() {
                Some(result) => break result.unwrap(),
                None => tokio::task::yield_now().await,
            }
        };
        assert_eq!((result.step, result.samples[0].token), (StepId(step), step as u32));
    }
}

#[tokio::test]
async fn a_prefill_carries_everything_the_shard_must_know() {
    let (mut shards, mut session) = open(1).await;
    session.send_step(&decode(1, &[(0, 9)]), &[]).unwrap();
    let mut mixed = plan(2).admit(2, 8, &[5, 6, 7]).chunk(2, 1, 2, true).chunk(1, 4, 3, false).decode(0, 10);
    mixed.admitted[0].generated = headrace_scheduler::Tokens(2);
    mixed.admitted[0].computed = headrace_scheduler::Tokens(1);
    mixed.copies = vec![BlockCopy { from: BlockId(3), to: BlockId(8) }];
    let sampling = Sampling { seed: u64::MAX, logit_bias: vec![(3, -1.5)], top_p: Some(0.5), ..asking() };
    session.send_step(&mixed, &[sampling]).unwrap();

    let mut messages = [shards[0].message().await.message, shards[0].message().await.message];
    messages.sort_by_key(|message| matches!(message, Message::Prefill(_)));
    let tables =
        |lengths: &[u32], blocks: &[u32]| Some(proto::BlockTables { lengths: packed(lengths), blocks: packed(blocks) });
    let decode_message = proto::DecodeStep {
        sequence: 1,
        step: 1,
        decode_rows: packed(&[0]),
        tables: tables(&[4], &[0, 1, 2, 3]),
        swaps: None,
    };
    let prefill_message = proto::PrefillStep {
        sequence: 2,
        step: 2,
        new_rows: vec![proto::NewRow {
            row: 2,
            epoch: 8,
            token_ids: packed(&[5, 6, 7]),
            num_generated: 2,
            num_computed: 1,
            sampling: Some(proto::Sampling {
                seed: u64::MAX,
                top_p: Some(0.5),
                logit_bias_ids: packed(&[3]),
                logit_bias_values: packed_f32(&[-1.5]),
                logprobs: true,
                top_n: 2,
                ..Default::default()
            }),
        }],
        chunk_rows: packed(&[2, 1]),
        chunk_tokens: packed(&[2, 3]),
        decode_rows: packed(&[0]),
        tables: tables(&[4, 4, 4], &[8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3]),
        copies: packed(&[3, 8]),
        swaps: None,
    };
    assert_eq!(messages, [Message::Decode(decode_message), Message::Prefill(prefill_message)]);
}

#[tokio::test]
async fn log_probabilities_and_top_tokens_go_to_the_rows_that_asked() {
    let (mut shards, mut session) = open(1).await;
    let plan = plan(1).admit(0, 1, &[5]).admit(1, 2, &[6]).chunk(0, 0, 1, true).chunk(1, 0, 1, true);
    session.send_step(&plan, &[Sampling::greedy(), asking()]).unwrap();
    let waiting = shards[0].message().await;
    waiting.answer(proto::StepResult {
        logprobs: packed_f32(&[-0.5]),
        top_ids: packed(&[20, 21]),
        top_logprobs: packed_f32(&[-0.5, -0.75]),
        ..waiting.result(&[10, 20])
    });
    let samples = session.next_result().await.unwrap().samples;
    assert_eq!((samples[0].token, samples[0].logprob, samples[0].top.len()), (10, None, 0));
    assert_eq!((samples[1].token, samples[1].logprob), (20, Some(-0.5)));
    assert_eq!(samples[1].top, [(20, -0.5), (21, -0.75)]);
}

/// The row's last token is under way when the row is given to somebody who asks for something else.
#[tokio::test]
async fn a_row_given_away_while_its_result_is_under_way_keeps_both_holders_reports() {
    let (mut shards, mut session) = open(1).await;
    session.send_step(&prefill(1, 0, 1, &[5]), &[asking()]).unwrap();
    session.send_step(&prefill(2, 0, 2, &[6]), &[Sampling::greedy()]).unwrap();
    session.send_filter(&[(Row(0), Epoch(1))]).unwrap();
    session.send_step(&decode(3, &[(0, 1)]), &[]).unwrap();

    let mut steps = vec![];
    while steps.len() < 3 {
        let waiting = shards[0].message().await;
        if waiting.stream == "Filter" { waiting.done() } else { steps.push(waiting) }
    }
    for waiting in steps {
        let mut result = waiting.result(&[10]);
        if waiting.step() == 1 {
            result.logprobs = packed_f32(&[-1.0]);
            result.top_ids = packed(&[10, 11]);
            result.top_logprobs = packed_f32(&[-1.0, -2.0]);
        }
        waiting.answer(result);
    }
    for reported in [true, false, false] {
        let result = session.next_result().await.unwrap();
        assert_eq!(result.samples[0].logprob.is_some(), reported, "step {}", result.step);
    }
}

#[tokio::test]
async fn prompt_log_probabilities_come_with_each_chunk_of_a_row_that_asked() {
    let (mut shards, mut session) = open(1).await;
    let sampling = Sampling { prompt_logprobs: true, ..Sampling::greedy() };
    let first = plan(1).admit(0, 1, &[5, 6, 7]).admit(1, 2, &[8]).chunk(0, 0, 2, false).chunk(1, 0, 1, true);
    session.send_step(&first, &[sampling, Sampling::greedy()]).unwrap();
    session.send_step(&plan(2).chunk(0, 2, 1, true), &[]).unwrap();
    for (tokens, logprobs) in [([10], &[f32::NAN, -1.0][..]), ([11], &[-2.0])] {
        let waiting = shards[0].message().await;
        waiting.answer(proto::StepResult { prompt_logprobs: packed_f32(logprobs), ..waiting.result(&tokens) });
    }
    let result = session.next_result().await.unwrap();
    let (request, logprobs) = &result.prompt_logprobs[0];
    assert_eq!((*request, result.prompt_logprobs.len(), logprobs.len()), (RequestId(0), 1, 2));
    assert!(logprobs[0].is_nan() && logprobs[1] == -1.0);
    assert_eq!(session.next_result().await.unwrap().prompt_logprobs, [(RequestId(0), vec![-2.0])]);
}

#[tokio::test]
async fn a_failed_row_fails_alone_with_the_shards_sentence() {
    let (mut shards, mut session) = open(1).await;
    session.send_step(&decode(1, &[(0, 3), (1, 3)]), &[]).unwrap();
    let waiting = shards[0].message().await;
    let row_errors = vec![proto::RowError { row: 1, message: "its grammar has no way on".into() }];
    waiting.answer(proto::StepResult { row_errors, ..waiting.result(&[10, 0]) });
    let result = session.next_result().await.unwrap();
    assert_eq!(result.row_errors, [(Row(1), "rank 0: its grammar has no way on".into())]);
    assert_eq!((result.error, result.samples[0].token, result.samples[1].token), (None, 10, 0));
}

#[tokio::test]
async fn a_failed_step_has_no_samples_and_the_session_goes_on() {
    let (mut shards, mut session) = open(1).await;
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    let waiting = shards[0].message().await;
    waiting.answer(proto::StepResult { error: Some("out of memory".into()), ..waiting.result(&[]) });
    let result = session.next_result().await.unwrap();
    assert_eq!((result.error.unwrap().sentence.as_str(), result.samples.len()), ("rank 0: out of memory", 0));

    session.send_step(&prefill(2, 0, 2, &[5]), &[Sampling::greedy()]).unwrap();
    shards[0].sample(&[11]).await;
    assert_eq!(session.next_result().await.unwrap().samples[0].token, 11);
}

#[tokio::test]
async fn malformed_answers_are_protocol_errors_that_name_the_field() {
    type Spoil = fn(&mut proto::StepResult);
    let cases: [(Spoil, &str); 11] = [
        (|r| r.token_ids = packed(&[1, 2]), "token_ids holds 8 bytes, not 1 × 4"),
        (|r| r.token_ids = vec![1, 2, 3].into(), "token_ids holds 3 bytes"),
        (|r| r.token_ids = packed(&[1000]), "token id 1000, the vocabulary has 1000"),
        (|r| r.logprobs = packed_f32(&[]), "logprobs holds 0 bytes"),
        (|r| r.top_ids = packed(&[1]), "top_ids holds 4 bytes"),
        (|r| r.top_ids = packed(&[1, 1000]), "token id 1000"),
        (|r| r.top_logprobs = packed_f32(&[1.0; 3]), "top_logprobs holds 12 bytes"),
        (|r| r.prompt_logprobs = packed_f32(&[1.0]), "prompt_logprobs holds 4 bytes"),
        (|r| r.row_errors = vec![proto::RowError { row: 9, message: String::new() }], "row 9"),
        (|r| r.sequence = 7, "message 1 is to be answered, it answered 7"),
        (|r| r.step = 7, "step 1, it answered for step 7"),
    ];
    for (spoil, words) in cases {
        let (mut shards, mut session) = open(1).await;
        session.send_step(&prefill(1, 0, 1, &[5]), &[asking()]).unwrap();
        let waiting = shards[0].message().await;
        let mut result = proto::StepResult {
            logprobs: packed_f32(&[-1.0]),
            top_ids: packed(&[1, 2]),
            top_logprobs: packed_f32(&[-1.0, -2.0]),
            ..waiting.result(&[1])
        };
        spoil(&mut result);
        waiting.answer(result);
        let reason = protocol_error(&mut session).await;
        assert!(reason.contains(words), "{reason:?} does not say {words:?}");
    }
}

#[tokio::test]
async fn an_answer_that_nobody_awaits_is_a_protocol_error_after_the_result_that_came_before() {
    let (mut shards, mut session) = open(1).await;
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    let waiting = shards[0].message().await;
    waiting.answer(waiting.result(&[1]));
    waiting.answer(waiting.result(&[1]));
    session.next_result().await.unwrap();
    assert!(protocol_error(&mut session).await.contains("which is not awaited"));
}

#[tokio::test]
async fn answers_to_filters_are_consumed() {
    let (mut shards, mut session) = open(1).await;
    for epoch in 1..=2 * MAX_FILTERS_IN_FLIGHT as u64 {
        session.send_filter(&[(Row(0), Epoch(epoch))]).unwrap();
        shards[0].message().await.done();
        assert!(session.next_result().now_or_never().is_none());
    }
    session.send_step(&decode(1, &[(0, 3)]), &[]).unwrap();
    shards[0].sample(&[4]).await;
    assert_eq!(session.next_result().await.unwrap().samples[0].token, 4);
}

/// The shard reads and answers nothing; every call must return at once, and memory stays bounded.
#[tokio::test]
async fn a_shard_that_answers_nothing_does_not_block_sending() {
    let (_shards, mut session) = open(1).await;
    let long: Vec<u32> = (0..1_000_000).map(|i| i % 1000).collect();
    for step in 1..=MAX_STEPS_IN_FLIGHT as u64 {
        session.send_step(&prefill(step, 0, step, &long), &[Sampling::greedy()]).unwrap();
    }
    let error = session.send_step(&prefill(9, 0, 9, &[1]), &[Sampling::greedy()]).unwrap_err();
    assert!(matches!(&error, ShardError::Misuse { reason } if reason.contains("4 steps are unanswered")), "{error}");
    assert_eq!(session.next_result().await, Err(error), "the session is over");
}

#[tokio::test]
async fn a_prompt_of_a_hundred_thousand_tokens_passes_in_one_message() {
    let (mut shards, mut session) = open(1).await;
    let tokens: Vec<u32> = (0..100_000).map(|i| i % 1000).collect();
    let rows = (0..20).fold(plan(1), |plan, row| plan.admit(row, row as u64 + 1, &tokens).chunk(row, 0, 100, false));
    session.send_step(&rows, &vec![Sampling::greedy(); 20]).unwrap();
    let Message::Prefill(received) = shards[0].message().await.message else { panic!("no Prefill") };
    assert!(received.new_rows.iter().all(|row| row.token_ids.len() == 400_000));
}

#[tokio::test]
async fn plans_that_cannot_be_sent_are_the_callers_fault() {
    let bad_range = |mut plan: headrace_scheduler::StepPlan| {
        plan.decodes[0].blocks = 3..9;
        plan
    };
    let cases = [
        (plan(1), vec![], "no rows"),
        (prefill(1, 0, 1, &[5]), vec![], "0 sampling parameters for 1 admitted rows"),
        (plan(1).admit(0, 1, &[5]).decode(1, 3), vec![Sampling::greedy()], "admits 1 rows with 0 chunks"),
        (bad_range(decode(1, &[(0, 3)])), vec![], "outside its 4 blocks"),
    ];
    for (plan, sampling, words) in cases {
        let (_shards, mut session) = open(1).await;
        let error = session.send_step(&plan, &sampling).unwrap_err();
        assert!(matches!(&error, ShardError::Misuse { reason } if reason.contains(words)), "{error}");
    }
}
