//! Right tokens, right text, right ends.

use std::time::Duration;

use crate::world::{Said, Setup, World, read, request, token, tokenizer};
use headrace_engine::{FinishReason, GenerationError, GenerationRequest, StopText, Update};
use headrace_scheduler::{Blocks, Rejected, Tokens};
use headrace_shard::Sampling;
use headrace_text::SpecialTokens;
use tokio::time::timeout;

#[tokio::test(start_paused = true)]
async fn a_hundred_generations_at_once_each_get_their_own_tokens() {
    // A pool of 60 blocks for requests of up to 15 makes them wait and be preempted.
    let world = Setup { blocks: Blocks(60), max_batch_size: 16, ..Setup::default() }.start().await;
    let mut readers = Vec::new();
    for n in 0..100_u32 {
        let (prompt, max_new) = (format!("prompt {n} {}", "x".repeat(n as usize % 13)), 5 + n % 29);
        let generation = world.generate(&prompt, max_new).await;
        readers.push((world.expected(&prompt, max_new), tokio::spawn(read(generation))));
    }
    for (expected, reader) in readers {
        let said = reader.await.expect("reads");
        assert_eq!(said.ids(), expected);
        assert_eq!(said.finished().generated, Tokens(expected.len() as u32));
        assert_eq!(said.finished().text, said.event_text());
    }
    world.assert_idle_and_empty().await;
}

#[tokio::test(start_paused = true)]
async fn log_probabilities_and_likeliest_tokens_come_with_each_token() {
    let world = World::new().await;
    let sampling = Sampling { logprobs: true, top_n: 3, ..Sampling::greedy() };
    let generation = world.engine.generate(GenerationRequest { sampling, ..request("hello", 6) }).await.expect("taken");
    let said = read(generation).await;
    let logprobs: Vec<f32> = said.tokens.iter().filter_map(|token| token.logprob).collect();
    assert_eq!(logprobs, world.fake.expected_logprobs(&tokenizer::ids("hello"), 6));
    for token in &said.tokens {
        assert_eq!(token.top.len(), 3);
        assert_eq!((token.top[0].id, token.top[0].text.as_str()), (token.id, token.text.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn prompt_log_probabilities_come_once_whole_and_first() {
    // In chunks of 8 tokens, and once more after the preemption that the seed forces.
    let setup = Setup { max_batch_prefill_tokens: Tokens(8), preempt_once_seed: Some(3), ..Setup::default() };
    let world = setup.start().await;
    let prompt = "a prompt of some length, in chunks";
    let sampling = Sampling { prompt_logprobs: true, ..Sampling::greedy() };
    let generation = world.engine.generate(GenerationRequest { sampling, ..request(prompt, 9) }).await.expect("taken");
    let said = read(generation).await;
    assert_eq!(said.ids(), world.expected(prompt, 9));
    let expected = world.fake.expected_prompt_logprobs(&tokenizer::ids(prompt));
    assert_eq!(said.prompts.len(), 1);
    assert!(said.prompts[0][0].is_nan());
    assert_eq!(said.prompts[0][1..], expected[1..]);
}

#[tokio::test(start_paused = true)]
async fn an_end_of_sequence_token_is_shown_but_is_no_part_of_the_answer() {
    let setup = Setup { choices: [tokenizer::ids("ab"), vec![tokenizer::END]].concat(), ..Setup::default() };
    let world = setup.start().await;
    let said = read(world.generate("hello", 200).await).await;
    let end = world.expected("hello", 200).iter().position(|&id| id == tokenizer::END).expect("comes up");
    assert_eq!(said.finished().reason, FinishReason::EndOfSequence);
    assert_eq!(said.tokens.len(), end + 1);
    assert!(said.tokens[end].special);
    assert_eq!(said.event_text(), format!("{}<|end|>", said.finished().text));
    assert!(!said.finished().text.contains('<'));
}

#[tokio::test(start_paused = true)]
async fn end_of_sequence_can_be_ignored() {
    let setup = Setup { choices: [tokenizer::ids("ab"), vec![tokenizer::END]].concat(), ..Setup::default() };
    let world = setup.start().await;
    let ignoring = GenerationRequest { ignore_eos: true, ..request("hello", 50) };
    let said = read(world.engine.generate(ignoring).await.expect("taken")).await;
    assert_eq!(said.ids(), world.expected("hello", 50));
    assert_eq!(said.finished().reason, FinishReason::Length);
}

/// The four letters from place 10 on of the right answer: a stop string over four tokens. Where it first ends.
async fn stopped(stop_text: StopText) -> (World, Said, String, usize) {
    let world = World::new().await;
    let whole = world.expected_text("hello", 40);
    let stop = whole[10..14].to_owned();
    let end = whole.find(&stop).expect("it is there") + stop.len();
    let stopping = GenerationRequest { stop: vec![stop.clone(), "zz".into()], stop_text, ..request("hello", 40) };
    let said = read(world.engine.generate(stopping).await.expect("taken")).await;
    assert_eq!(said.finished().reason, FinishReason::StopString);
    assert_eq!(said.tokens.len(), end);
    // The row ends with the text, not at its 40 tokens: two steps at most are still in flight.
    timeout(Duration::from_millis(61), world.assert_idle_and_empty()).await.expect("at once");
    (world, said, whole, end)
}

#[tokio::test(start_paused = true)]
async fn a_kept_stop_string_over_several_tokens_ends_the_answer() {
    let (_world, said, whole, end) = stopped(StopText::Keep).await;
    assert_eq!(said.finished().text, whole[..end]);
    assert_eq!(said.event_text(), whole[..end]);
    assert!(said.tokens.iter().all(|token| token.text.len() == 1), "each event carries its own text");
}

#[tokio::test(start_paused = true)]
async fn a_stripped_stop_string_over_several_tokens_never_appears() {
    let (_world, said, whole, end) = stopped(StopText::Strip).await;
    assert_eq!(said.finished().text, whole[..end - 4]);
    assert_eq!(said.event_text(), whole[..end - 4]);
}

#[tokio::test(start_paused = true)]
async fn text_held_back_for_a_stop_string_comes_when_the_answer_ends_otherwise() {
    let world = World::new().await;
    let whole = world.expected_text("hello", 12);
    let nearly = format!("{}!", &whole[9..]);
    let holding = GenerationRequest { stop: vec![nearly], stop_text: StopText::Strip, ..request("hello", 12) };
    let said = read(world.engine.generate(holding).await.expect("taken")).await;
    assert_eq!(said.finished().reason, FinishReason::Length);
    assert_eq!(said.event_text(), whole);
    assert_eq!(said.finished().text, whole);
}

#[tokio::test(start_paused = true)]
async fn a_stop_string_wins_over_length_in_the_same_token() {
    let world = World::new().await;
    let whole = world.expected_text("hello", 14);
    let stop = (1..=14).map(|n| whole[14 - n..].to_owned()).find(|stop| whole.find(stop) == Some(14 - stop.len()));
    let stopping = GenerationRequest { stop: stop.into_iter().collect(), ..request("hello", 14) };
    let said = read(world.engine.generate(stopping).await.expect("taken")).await;
    assert_eq!((said.tokens.len(), said.finished().reason), (14, FinishReason::StopString));
}

#[tokio::test(start_paused = true)]
async fn the_end_is_there_when_the_last_token_is() {
    let world = World::new().await;
    let mut generation = world.generate("hello", 3).await;
    for _ in 0..3 {
        assert!(generation.try_next().is_none());
        token(&mut generation).await;
    }
    assert!(matches!(generation.try_next(), Some(Update::Finished(_))));
    assert!(generation.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn times_say_where_a_request_waited() {
    let world = Setup { max_batch_size: 1, ..Setup::default() }.start().await;
    let first = world.generate("first", 10).await;
    let second = world.generate("second", 10).await;
    let first = read(first).await.finished().timings;
    let second = read(second).await.finished().timings;
    let step = Duration::from_millis(30);
    assert!(first.queue < step && first.first_token >= step && first.first_token < 2 * step, "{first:?}");
    assert!(second.queue > 8 * step && second.queue < 12 * step, "{second:?}");
    assert!(second.inference >= 9 * step && second.inference < 13 * step, "{second:?}");
    assert!(second.first_token > second.queue);
}

#[tokio::test(start_paused = true)]
async fn what_could_never_run_is_refused_at_once() {
    let world = Setup { max_concurrent_requests: Some(1), ..Setup::default() }.start().await;
    let refused = world.engine.generate(request("", 5)).await.expect_err("no prompt");
    assert!(matches!(refused, GenerationError::Rejected(Rejected::EmptyPrompt)), "{refused:?}");
    let refused = world.engine.generate(request("hello", 5_000)).await.expect_err("too long");
    assert!(matches!(refused, GenerationError::Rejected(Rejected::TooLong { .. })), "{refused:?}");
    let _running = world.generate("hello", 5).await;
    let refused = world.engine.generate(request("hello", 5)).await.expect_err("one too many");
    assert!(matches!(refused, GenerationError::Rejected(Rejected::Overloaded(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_together_are_in_one_step_and_answer_in_their_order() {
    let world = World::new().await;
    let prompts = ["one", "another one", "a third one"];
    let requests = prompts.iter().map(|prompt| request(prompt, 6)).collect();
    let generations = world.engine.generate_all(requests).await.expect("taken");
    let began = tokio::time::Instant::now();
    for (generation, prompt) in generations.into_iter().zip(prompts) {
        assert_eq!(read(generation).await.ids(), world.expected(prompt, 6));
    }
    assert_eq!(began.elapsed(), Duration::from_millis(6 * 30), "six steps, and nobody was a step behind");
}

#[tokio::test(start_paused = true)]
async fn of_requests_that_come_together_all_are_taken_or_none() {
    let world = Setup { max_concurrent_requests: Some(2), ..Setup::default() }.start().await;
    let three = (0..3).map(|n| request(&format!("prompt {n}"), 50)).collect();
    let refused = world.engine.generate_all(three).await.expect_err("one too many");
    assert!(matches!(refused, GenerationError::Rejected(Rejected::Overloaded(_))), "{refused}");
    world.assert_idle_and_empty().await;
    let two = (0..2).map(|n| request(&format!("prompt {n}"), 2)).collect();
    assert_eq!(world.engine.generate_all(two).await.expect("the places came back").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_last_token_is_known_to_be_the_last() {
    let world = World::new().await;
    let mut generation = world.generate("hello", 5).await;
    let mut ending = Vec::new();
    while let Some(update) = generation.next().await {
        if matches!(update, Update::Token(_)) {
            ending.push(generation.is_ending());
        }
    }
    assert_eq!(ending, [false, false, false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn token_texts_without_special_tokens_are_together_the_answer() {
    let setup = Setup { choices: [tokenizer::ids("ab"), vec![tokenizer::END]].concat(), ..Setup::default() };
    let world = setup.start().await;
    let plain = GenerationRequest { special_tokens: SpecialTokens::Skip, ..request("hello", 200) };
    let said = read(world.engine.generate(plain).await.expect("taken")).await;
    assert_eq!(said.finished().reason, FinishReason::EndOfSequence);
    assert_eq!(said.event_text(), said.finished().text);
}
