//! The fake shard: right answers, strictness, failures on demand, time.

use std::time::Duration;

use crate::plans::{With, decode, plan, prefill};
use futures::FutureExt;
use headrace_scheduler::{BlockId, Blocks, Epoch, HostBlock, Row, StepPlan, SwapIn, SwapOut, Tokens};
use headrace_shard::{
    CostModel, Deadlines, EosRule, FakeShard, LogicalShard, Sampling, Session, ShardError, StepResult, TokenRule,
    WarmupLimits,
};
use tokio::time::Instant;

const LIMITS: WarmupLimits = WarmupLimits {
    max_batch_size: 8,
    max_batch_prefill_tokens: Tokens(512),
    max_total_tokens: None,
    blocks: None,
    host_bytes: 0,
};

async fn open(fake: &FakeShard) -> Session {
    let shard = LogicalShard::fake(fake.clone());
    shard.warmup(&LIMITS).await.unwrap();
    shard.open_session().await.unwrap()
}

async fn run(session: &mut Session, plan: &StepPlan) -> StepResult {
    let sampling = vec![Sampling::greedy(); plan.admitted.len()];
    session.send_step(plan, &sampling).unwrap();
    session.next_result().await.unwrap()
}

async fn run_all(session: &mut Session, plans: &[StepPlan]) -> Vec<u32> {
    let mut tokens = vec![];
    for plan in plans {
        let result = run(session, plan).await;
        assert_eq!(result.error, None);
        tokens.extend(result.samples.iter().map(|sample| sample.token));
    }
    tokens
}

/// Runs a step that must be refused, and says what for.
async fn violation(session: &mut Session, plan: &StepPlan) -> String {
    let result = run(session, plan).await;
    assert!(result.samples.is_empty());
    result.error.unwrap().sentence
}

#[tokio::test]
async fn answers_are_the_expected_ones_whole_or_in_chunks() {
    let fake = FakeShard::new();
    let expected = fake.expected_tokens(&[1, 2, 3], 3);
    let mut session = open(&fake).await;
    let whole = [prefill(1, 0, 1, &[1, 2, 3]), decode(2, &[(0, 3)]), decode(3, &[(0, 4)])];
    assert_eq!(run_all(&mut session, &whole).await, expected);

    let first = plan(4).admit(5, 2, &[1, 2, 3]).chunk(5, 0, 1, false);
    let chunked = [first, plan(5).chunk(5, 1, 2, true), decode(6, &[(5, 3)]), decode(7, &[(5, 4)])];
    assert_eq!(run_all(&mut session, &chunked).await, expected);
}

#[tokio::test]
async fn an_answer_goes_on_after_a_preemption_as_if_nothing_had_happened() {
    let fake = FakeShard::new();
    let expected = fake.expected_tokens(&[1, 2], 4);
    let mut session = open(&fake).await;
    run_all(&mut session, &[prefill(1, 0, 1, &[1, 2]), decode(2, &[(0, 2)])]).await;
    session.send_filter(&[(Row(0), Epoch(1))]).unwrap();

    let mut again = prefill(3, 3, 2, &[1, 2, expected[0], expected[1]]);
    again.admitted[0].generated = Tokens(2);
    assert_eq!(run_all(&mut session, &[again, decode(4, &[(3, 4)])]).await, expected[2..]);
}

#[tokio::test]
async fn batch_mates_do_not_change_an_answer() {
    let fake = FakeShard::new();
    let mut session = open(&fake).await;
    run(&mut session, &prefill(1, 0, 1, &[1])).await;
    let mixed = plan(2).admit(1, 2, &[7, 8]).chunk(1, 0, 2, true).decode(0, 1);
    let result = run(&mut session, &mixed).await;
    let tokens: Vec<_> = result.samples.iter().map(|sample| sample.token).collect();
    assert_eq!(tokens, [fake.expected_tokens(&[7, 8], 1)[0], fake.expected_tokens(&[1], 2)[1]]);
}

#[tokio::test]
async fn log_probabilities_are_the_expected_ones() {
    let fake = FakeShard::new();
    let mut session = open(&fake).await;
    let sampling = Sampling { logprobs: true, top_n: 3, prompt_logprobs: true, ..Sampling::greedy() };
    session.send_step(&prefill(1, 0, 1, &[1, 2, 3]), &[sampling]).unwrap();
    session.send_step(&decode(2, &[(0, 3)]), &[]).unwrap();
    let results = [session.next_result().await.unwrap(), session.next_result().await.unwrap()];
    let logprobs: Vec<_> = results.iter().map(|result| result.samples[0].logprob.unwrap()).collect();
    assert_eq!(logprobs, fake.expected_logprobs(&[1, 2, 3], 2));
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&results[0].prompt_logprobs[0].1), bits(&fake.expected_prompt_logprobs(&[1, 2, 3])));
    assert_eq!(results[0].samples[0].top[0], (results[0].samples[0].token, logprobs[0]));
    assert!(results[1].prompt_logprobs.is_empty() && results[1].samples[0].top.len() == 3);
}

#[tokio::test]
async fn an_answer_ends_where_the_end_of_sequence_rule_says() {
    let rule = TokenRule { choices: Some([7, 8].into()), eos: Some(EosRule { token: 2, one_in: 5 }) };
    let fake = FakeShard::new().with_rule(rule);
    let answer = fake.expected_answer(&[1], 100);
    assert_eq!(answer.iter().position(|token| *token == 2), Some(answer.len() - 1));
    assert_eq!(fake.expected_tokens(&[1], 100)[..answer.len()], answer);
}

#[tokio::test]
async fn plans_that_contradict_the_session_are_step_errors_that_say_how() {
    let short_table = |mut plan: StepPlan| {
        plan.chunks[0].blocks = 0..1;
        plan
    };
    let foreign_block = |mut plan: StepPlan| {
        plan.blocks[0] = BlockId(1024);
        plan
    };
    let computed = |mut plan: StepPlan| {
        plan.admitted[0].computed = Tokens(1);
        plan.chunks[0].start = Tokens(1);
        plan.chunks[0].tokens = Tokens(1);
        plan
    };
    let long = vec![1; 40];
    let cases = [
        (decode(2, &[(4, 1)]), "row 4 is not held"),
        (decode(2, &[(0, 5)]), "row 0 decodes position 5, but 2 are computed"),
        (plan(2).decode(0, 2).decode(0, 2), "row 0 is named twice"),
        (plan(2).decode(1, 1), "row 1 decodes after 1 of 3 prompt tokens"),
        (plan(2).chunk(1, 0, 1, false), "row 1 has a chunk from position 0, but 1 are computed"),
        (plan(2).chunk(1, 1, 9, true), "row 1 has a chunk of 9 tokens, 2 are left"),
        (plan(2).chunk(1, 1, 2, false), "samples is false"),
        (plan(2).chunk(1, 1, 1, true), "samples is true"),
        (prefill(2, 3, 2, &[1]), "row 3 is admitted as epoch 2, but epoch 2 has begun"),
        (prefill(2, 8, 3, &[1]), "row 8 is outside the batch of 8 rows"),
        (prefill(2, 3, 3, &[1, 32_000]), "token 32000 of a vocabulary of 32000"),
        (plan(2).admit(3, 3, &[1]).chunk(1, 1, 1, false), "row 3 is admitted without a chunk"),
        (plan(2).admit(3, 3, &[]).chunk(3, 0, 1, true), "row 3 has 0 tokens"),
        (short_table(prefill(2, 3, 3, &long)), "has a block table of 1 blocks, 40 positions need 2"),
        (foreign_block(prefill(2, 3, 3, &[1])), "block 1024 of a pool of 1024"),
        (computed(prefill(2, 3, 3, &[1, 2])), "finds another history at position 0"),
    ];
    for (wrong, words) in cases {
        let mut session = open(&FakeShard::new()).await;
        let first = plan(1).admit(0, 1, &[5, 6]).admit(1, 2, &[1, 2, 3]).chunk(0, 0, 2, true).chunk(1, 0, 1, false);
        assert_eq!(run(&mut session, &first).await.error, None);
        let error = violation(&mut session, &wrong).await;
        assert!(error.starts_with("rank 0: violation: ") && error.contains(words), "{error:?}, not {words:?}");
    }
}

#[tokio::test]
async fn a_block_that_was_freed_too_early_is_noticed_by_the_row_that_still_reads_it() {
    let mut session = open(&FakeShard::new()).await;
    run_all(&mut session, &[prefill(1, 0, 1, &[5, 6])]).await;
    let mut thief = prefill(2, 1, 2, &[7, 8, 9]);
    thief.blocks[0] = BlockId(0); // row 0's
    run_all(&mut session, &[thief]).await;
    let error = violation(&mut session, &decode(3, &[(0, 2)])).await;
    assert!(error.contains("row 0 finds another history at position 1 (block 0)"), "{error}");
}

#[tokio::test]
async fn rows_may_share_the_blocks_of_an_equal_prefix() {
    let fake = FakeShard::new();
    let mut session = open(&fake).await;
    let prompt: Vec<u32> = (0..40).collect();
    run_all(&mut session, &[prefill(1, 0, 1, &prompt)]).await;
    let mut sharing = plan(2).admit(1, 2, &prompt).chunk(1, 32, 8, true);
    sharing.admitted[0].computed = Tokens(32);
    sharing.blocks[0] = BlockId(0);
    assert_eq!(run_all(&mut session, &[sharing]).await, fake.expected_tokens(&prompt, 1));
}

#[tokio::test]
async fn a_filtered_row_is_not_held_but_late_and_unknown_filters_do_nothing() {
    let mut session = open(&FakeShard::new()).await;
    run_all(&mut session, &[prefill(1, 0, 1, &[5]), prefill(2, 0, 2, &[6])]).await;
    session.send_filter(&[(Row(0), Epoch(1)), (Row(7), Epoch(1)), (Row(99), Epoch(1))]).unwrap();
    run_all(&mut session, &[decode(3, &[(0, 1)])]).await;
    session.send_filter(&[(Row(0), Epoch(2))]).unwrap();
    assert!(violation(&mut session, &decode(4, &[(0, 2)])).await.contains("row 0 is not held"));
}

#[tokio::test]
async fn a_filter_of_an_epoch_that_has_not_begun_fails_the_next_step() {
    let mut session = open(&FakeShard::new()).await;
    run_all(&mut session, &[prefill(1, 0, 1, &[5])]).await;
    session.send_filter(&[(Row(0), Epoch(2))]).unwrap();
    let error = violation(&mut session, &decode(2, &[(0, 1)])).await;
    assert!(error.contains("Filter ends epoch 2 of row 0, which is held by 1"), "{error}");
}

#[tokio::test]
async fn a_failed_row_fails_alone_and_stays_failed_until_it_is_given_away() {
    let fake = FakeShard::new();
    let mut session = open(&fake).await;
    let both = plan(1).admit(0, 1, &[5]).admit(1, 2, &[6]).chunk(0, 0, 1, true).chunk(1, 0, 1, true);
    run_all(&mut session, &[both]).await;
    fake.handle().fail_row(Row(1));
    for (step, position) in [(2, 1), (3, 2)] {
        let result = run(&mut session, &decode(step, &[(0, position), (1, position)])).await;
        assert_eq!((result.row_errors.len(), result.row_errors[0].0), (1, Row(1)));
        assert_eq!(result.samples[0].token, fake.expected_tokens(&[5], 3)[position as usize]);
        assert_eq!(result.samples[1].token, 0);
    }
    assert_eq!(run(&mut session, &prefill(4, 1, 3, &[6])).await.row_errors, []);
}

#[tokio::test]
async fn a_failed_step_takes_its_rows_with_it_until_they_are_admitted_anew() {
    let fake = FakeShard::new();
    let mut session = open(&fake).await;
    run_all(&mut session, &[prefill(1, 0, 1, &[5])]).await;
    fake.handle().fail_next_step();
    let result = run(&mut session, &decode(2, &[(0, 1)])).await;
    assert_eq!(result.error.map(|error| error.sentence).as_deref(), Some("rank 0: injected failure of the step"));
    let later = plan(3).admit(1, 2, &[6]).chunk(1, 0, 1, true).decode(0, 2);
    let result = run(&mut session, &later).await;
    assert_eq!(result.row_errors, [(Row(0), "rank 0: the row was in a step that failed".into())]);
    assert_eq!(result.samples[0].token, fake.expected_tokens(&[6], 1)[0], "its neighbour is right");
    assert_eq!(run_all(&mut session, &[prefill(4, 0, 3, &[5])]).await, fake.expected_tokens(&[5], 1));
}

#[tokio::test]
async fn an_ended_session_loses_results_under_way_and_another_opens_at_once() {
    let fake = FakeShard::new();
    let mut session = open(&fake).await;
    session.send_step(&prefill(1, 0, 1, &[5]), &[Sampling::greedy()]).unwrap();
    fake.handle().end_session();
    let error = session.next_result().await.unwrap_err();
    assert!(matches!(error, ShardError::SessionEnded { rank: 0, .. }), "{error}");
    assert_eq!(session.send_step(&decode(2, &[(0, 1)]), &[]), Err(error));

    let mut session = LogicalShard::fake(fake.clone()).open_session().await.unwrap();
    assert!(violation(&mut session, &decode(3, &[(0, 1)])).await.contains("row 0 is not held"));
}

#[tokio::test]
async fn a_session_that_waits_hears_of_its_end() {
    let fake = FakeShard::new();
    let mut session = open(&fake).await;
    let mut waiting = Box::pin(session.next_result());
    for _ in 0..3 {
        assert!(waiting.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    fake.handle().die();
    assert!(matches!(waiting.await, Err(ShardError::SessionEnded { .. })));
}

#[tokio::test]
async fn a_dead_shard_is_unreachable_and_one_that_came_back_wants_its_warmup() {
    let fake = FakeShard::new();
    let mut session = open(&fake).await;
    let shard = LogicalShard::fake(fake.clone());
    fake.handle().die();
    assert!(matches!(session.next_result().await, Err(ShardError::SessionEnded { .. })));
    assert!(matches!(shard.health().await, Err(ShardError::Unreachable { .. })));
    assert!(matches!(shard.facts().await, Err(ShardError::Unreachable { .. })));
    assert!(matches!(shard.warmup(&LIMITS).await, Err(ShardError::Unreachable { .. })));
    assert!(matches!(shard.open_session().await, Err(ShardError::Unreachable { .. })));

    fake.handle().come_back();
    assert_eq!(shard.health().await, Ok(()));
    assert!(matches!(shard.open_session().await, Err(ShardError::Refused { .. })));
    shard.warmup(&LIMITS).await.unwrap();
    assert!(shard.open_session().await.is_ok());
}

#[tokio::test]
async fn a_newer_session_ends_the_older_one() {
    let fake = FakeShard::new();
    let mut older = open(&fake).await;
    let _newer = open(&fake).await;
    assert!(matches!(older.next_result().await, Err(ShardError::SessionEnded { .. })));
}

#[tokio::test]
async fn the_pool_is_what_memory_allows_but_no_more_than_a_full_batch_could_fill() {
    let fake = FakeShard::new().with_blocks(Blocks(50));
    let shard = LogicalShard::fake(fake.clone());
    assert_eq!(shard.warmup(&LIMITS).await.unwrap().blocks, Blocks(50));
    let small = WarmupLimits { max_total_tokens: Some(Tokens(65)), ..LIMITS };
    assert_eq!(shard.warmup(&small).await.unwrap().blocks, Blocks(24), "8 rows of 3 blocks");
    let large = WarmupLimits { blocks: Some(Blocks(51)), ..LIMITS };
    let error = shard.warmup(&large).await.unwrap_err().to_string();
    assert!(error.contains("51 blocks") && error.contains("allows 50"), "{error}");
}

/// Row 0's blocks go to host memory, row 1 writes over them, and row 0's tokens come back in blocks of row 2.
#[tokio::test]
async fn kv_that_was_swapped_out_and_in_again_is_still_there() {
    let shard = LogicalShard::fake(FakeShard::new());
    let two_blocks = 2 * 32 * 1024;
    let report = shard.warmup(&WarmupLimits { host_bytes: two_blocks + 1, ..LIMITS }).await.unwrap();
    assert_eq!(report.host_blocks, Blocks(2));
    for (hosts, lost) in [([1, 0], false), ([0, 1], true)] {
        let mut session = shard.open_session().await.unwrap();
        assert_eq!(run(&mut session, &prefill(1, 0, 1, &[5; 40])).await.error, None);
        let mut over = plan(2).admit(1, 2, &[6; 40]).chunk(1, 0, 40, true);
        over.blocks[..2].copy_from_slice(&[BlockId(0), BlockId(1)]);
        over.swaps_out
            .extend((0..).zip([1, 0]).map(|(block, host)| SwapOut { block: BlockId(block), host: HostBlock(host) }));
        assert_eq!(run(&mut session, &over).await.error, None);
        let mut back = plan(3).admit(2, 3, &[5; 41]).chunk(2, 40, 1, true);
        back.admitted[0].computed = Tokens(40);
        back.swaps_in
            .extend((8..).zip(hosts).map(|(block, host)| SwapIn { host: HostBlock(host), block: BlockId(block) }));
        assert_eq!(run(&mut session, &back).await.error.is_some(), lost);
    }
}

#[tokio::test]
async fn a_swap_of_a_block_that_is_not_there_fails_the_step() {
    let mut session = open(&FakeShard::new()).await;
    let mut step = prefill(1, 0, 1, &[5]);
    step.swaps_out.push(SwapOut { block: BlockId(0), host: HostBlock(0) });
    session.send_step(&step, &[Sampling::greedy()]).unwrap();
    let error = session.next_result().await.unwrap().error.expect("no host memory");
    assert!(error.sentence.contains("swaps block 0 and host block 0 of a pool of 1024 and 0"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn steps_follow_one_another_at_the_cost_models_pace() {
    let ms = Duration::from_millis;
    let cost = CostModel { step: ms(10), token: ms(2), row: ms(1) };
    let mut session = open(&FakeShard::new().with_cost(cost)).await;
    let start = Instant::now();
    session.send_step(&prefill(1, 0, 1, &[5, 6, 7]), &[Sampling::greedy()]).unwrap();
    session.send_step(&decode(2, &[(0, 3)]), &[]).unwrap();
    session.next_result().await.unwrap();
    assert_eq!(start.elapsed(), ms(10 + 3 * 2 + 1));
    let second = session.next_result().await.unwrap();
    assert_eq!(start.elapsed(), ms(17 + 10 + 2 + 1));
    assert_eq!((second.timing.inbox_us, second.timing.forward_us), (17_000, 13_000));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_shard_answers_after_it_resumes() {
    let fake = FakeShard::new();
    let mut session = open(&fake).await;
    fake.handle().stall();
    session.send_step(&prefill(1, 0, 1, &[5]), &[Sampling::greedy()]).unwrap();
    let hold = Duration::from_secs(30);
    assert!(tokio::time::timeout(hold, session.next_result()).await.is_err());
    fake.handle().resume();
    assert!(session.next_result().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_stalls_past_the_step_deadline_times_out() {
    let limit = Duration::from_secs(3);
    let fake = FakeShard::new().with_deadlines(Deadlines { step: limit, ..Deadlines::default() });
    let mut session = open(&fake).await;
    fake.handle().stall();
    session.send_step(&prefill(1, 0, 1, &[5]), &[Sampling::greedy()]).unwrap();
    let start = Instant::now();
    assert_eq!(session.next_result().await, Err(ShardError::Hung { ranks: vec![0], silent: false, limit }));
    assert_eq!(start.elapsed(), limit);
}

/// Otherwise an engine that loops over free steps would never let its thread do anything else.
#[tokio::test]
async fn a_free_result_is_never_there_before_others_have_run() {
    let mut session = open(&FakeShard::new()).await;
    session.send_step(&prefill(1, 0, 1, &[5]), &[Sampling::greedy()]).unwrap();
    assert!(session.next_result().now_or_never().is_none());
    assert!(session.next_result().now_or_never().is_some(), "the dropped call lost nothing");
}
