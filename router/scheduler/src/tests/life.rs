//! Submit, run, finish: one request's way, and every way to end it.

use super::shard::{EOS, EOS_AT, answer};
use super::world::{World, roomy};
use crate::{Config, FinishReason, OverloadCause, Rejected, Request, RequestId, Tokens};

fn request(prompt: Vec<u32>, max_new: u32) -> Request {
    Request::new(prompt, Tokens(max_new))
}

#[test]
fn a_request_submitted_now_is_in_the_very_next_plan() {
    let mut world = World::new(roomy());
    world.submit(4, 10);
    world.step();
    let late = world.submit(4, 10);
    let plan = world.step().expect("both run");
    assert_eq!(plan.admitted[0].request, late);
    assert_eq!((plan.chunks.len(), plan.decodes.len()), (1, 1));
}

#[test]
fn nothing_to_run_is_no_plan() {
    let mut world = World::new(roomy());
    assert_eq!(world.plan(), None);
    world.submit(4, 1);
    world.drain();
    assert_eq!(world.plan(), None);
}

#[test]
fn an_answer_ends_at_its_length() {
    let mut world = World::new(roomy());
    let id = world.submit(6, 5);
    world.drain();
    let story = &world.stories[&id];
    assert_eq!(story.finished, Some(FinishReason::Length));
    assert_eq!(story.answer, answer(&story.prompt, 5));
    world.check_all_is_back();
}

#[test]
fn end_of_sequence_ends_an_answer_and_is_its_last_token() {
    let mut world = World::new(roomy());
    let id = world.try_submit(request(vec![EOS_AT + 2, 5], 10)).expect("it fits");
    world.drain();
    let story = &world.stories[&id];
    assert_eq!(story.finished, Some(FinishReason::EndOfSequence));
    assert_eq!((story.answer.len(), story.answer[2]), (3, EOS));
}

#[test]
fn end_of_sequence_as_the_last_allowed_token_is_the_reason_not_the_length() {
    let mut world = World::new(roomy());
    let id = world.try_submit(request(vec![EOS_AT + 2, 5], 3)).expect("it fits");
    world.drain();
    assert_eq!(world.stories[&id].finished, Some(FinishReason::EndOfSequence));
}

#[test]
fn ignore_eos_goes_on_past_end_of_sequence() {
    let mut world = World::new(roomy());
    let ignoring = Request { ignore_eos: true, ..request(vec![EOS_AT + 2, 5], 6) };
    let id = world.try_submit(ignoring).expect("it fits");
    world.drain();
    let story = &world.stories[&id];
    assert_eq!((story.finished, story.answer.len(), story.answer[2]), (Some(FinishReason::Length), 6, EOS));
}

#[test]
fn a_stop_string_ends_an_answer_and_drops_the_sample_in_flight() {
    let mut world = World::new(roomy());
    let id = world.submit(4, 10);
    world.plan();
    world.plan();
    world.land();
    world.stop(id);
    world.land();
    world.plan();
    let story = &world.stories[&id];
    assert_eq!((story.finished, story.answer.len()), (Some(FinishReason::StopString), 1));
    world.check_all_is_back();
}

#[test]
fn stop_after_the_same_token_ended_the_answer_does_nothing() {
    let mut world = World::new(roomy());
    let id = world.submit(4, 1);
    world.step();
    world.stop(id);
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Length));
    assert_eq!(world.scheduler.stats().finished.total(), 1);
}

#[test]
fn a_waiting_request_is_cancelled_at_once() {
    let mut world = World::new(Config { max_batch_size: 1, ..roomy() });
    world.submit(4, 10);
    let waiting = world.submit(4, 10);
    world.step();
    world.cancel(waiting);
    assert_eq!(world.stories[&waiting].finished, Some(FinishReason::Cancelled));
    assert_eq!((world.scheduler.stats().waiting, world.scheduler.stats().queued_tokens), (0, 0));
}

#[test]
fn a_request_in_mid_prefill_is_cancelled_and_its_row_is_free_for_the_next_plan() {
    let mut world = World::new(Config { max_batch_size: 1, ..roomy() });
    let long = world.submit(40, 2);
    let next = world.submit(4, 2);
    world.plan();
    world.cancel(long);
    let plan = world.plan().expect("the next one enters while the old step is in flight");
    assert_eq!((plan.admitted[0].request, plan.chunks.len()), (next, 1));
}

#[test]
fn a_decoding_request_is_cancelled_and_its_blocks_are_free_when_the_step_in_flight_lands() {
    let mut world = World::new(roomy());
    let id = world.submit(6, 10);
    world.step();
    world.plan();
    world.cancel(id);
    let blocks = world.scheduler.stats().blocks;
    assert_eq!((blocks.held.0, blocks.leaving.0), (2, 2));
    world.land();
    assert_eq!(world.scheduler.stats().blocks.held.0, 0);
    assert_eq!(world.stories[&id].answer.len(), 1, "the sample in flight was dropped");
}

#[test]
fn cancelling_the_unknown_and_the_finished_is_no_error() {
    let mut world = World::new(roomy());
    let id = world.submit(4, 1);
    world.drain();
    world.cancel(id);
    world.cancel(RequestId(77));
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Length));
}

#[test]
fn a_request_that_can_never_fit_is_refused_with_the_numbers() {
    let mut world = World::new(Config { max_total_tokens: Tokens(20), ..roomy() });
    let refused = world.try_submit(request(vec![1; 15], 6)).expect_err("21 of 20 tokens");
    assert_eq!(refused, Rejected::TooLong { prompt: Tokens(15), max_new: Tokens(6), limit: Tokens(20) });
    let sentence = refused.to_string();
    assert!(["15", "6", "20", "--max-total-tokens"].iter().all(|part| sentence.contains(part)), "{sentence}");
    assert!(world.try_submit(request(vec![1; 15], u32::MAX)).is_err());
    assert!(world.try_submit(request(vec![1; 15], 5)).is_ok());
}

#[test]
fn a_request_without_a_prompt_or_without_new_tokens_is_refused() {
    let mut world = World::new(roomy());
    assert_eq!(world.try_submit(request(vec![], 5)), Err(Rejected::EmptyPrompt));
    assert_eq!(world.try_submit(request(vec![1], 0)), Err(Rejected::NothingToGenerate));
}

#[test]
fn the_limit_of_concurrent_requests_counts_running_and_waiting_together() {
    let mut world = World::new(Config { max_concurrent_requests: Some(2), max_batch_size: 1, ..roomy() });
    world.submit(4, 3);
    world.submit(4, 3);
    world.step();
    let refused = world.try_submit(request(vec![1], 1));
    let cause = OverloadCause::Requests { limit: 2 };
    assert!(matches!(&refused, Err(Rejected::Overloaded(overload)) if overload.cause == cause), "{refused:?}");
    world.drain();
    assert!(world.try_submit(request(vec![1], 1)).is_ok());
}

#[test]
fn a_request_that_fills_the_whole_pool_runs_alone_to_its_end() {
    let mut world = World::new(Config { max_total_tokens: Tokens(256), watermark_permille: 500, ..roomy() });
    let id = world.submit(200, 56);
    world.drain();
    assert_eq!(world.stories[&id].finished, Some(FinishReason::Length));
    assert_eq!(world.scheduler.stats().preemptions, 0);
}

#[test]
fn debug_tells_rows_progress_and_blocks() {
    let mut world = World::new(roomy());
    world.submit(4, 10);
    world.submit(30, 10);
    world.plan();
    let text = format!("{:?}", world.scheduler);
    for part in ["step 1, 1 in flight", "request 1: row 0 epoch 1 decode, 4 + 0 tokens (+1 unknown", "prefill 12/30"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}
