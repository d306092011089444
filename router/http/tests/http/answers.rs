//! Whole answers: shapes, texts, details, headers.

use serde_json::{Value, json};

use crate::tokenizer::{END, ids};
use crate::world::{Answer, Setup, World, shown};

const PROMPT: &str = "The capital of France is";

async fn generate(world: &World, parameters: Value) -> Value {
    let answer = world.post("/generate", json!({"inputs": PROMPT, "parameters": parameters})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

#[tokio::test]
async fn an_answer_is_an_object_with_the_text_alone() {
    let world = World::new().await;
    let answer = generate(&world, json!({"max_new_tokens": 8})).await;
    assert_eq!(answer, json!({"generated_text": world.expected(PROMPT, 8)}));
}

#[tokio::test]
async fn details_say_how_it_ended_and_which_tokens_it_has() {
    let world = World::new().await;
    let answer = generate(&world, json!({"max_new_tokens": 3, "details": true})).await;
    let tokens = world.shard.expected_tokens(&ids(PROMPT), 3);
    let logprobs = world.shard.expected_logprobs(&ids(PROMPT), 3);
    let text = world.expected(PROMPT, 3);
    let token =
        |i: usize| json!({"id": tokens[i], "text": text[i..=i], "logprob": shown(logprobs[i]), "special": false});
    let details = json!({
        "finish_reason": "length", "generated_tokens": 3, "seed": null, "prefill": [],
        "tokens": [token(0), token(1), token(2)],
    });
    assert_eq!(answer, json!({"generated_text": text, "details": details}));
}

#[tokio::test]
async fn prefill_holds_the_prompts_tokens_and_the_first_has_no_logprob() {
    let world = World::new().await;
    let answer = generate(&world, json!({"max_new_tokens": 1, "decoder_input_details": true})).await;
    let prefill = answer["details"]["prefill"].as_array().unwrap();
    let logprobs = world.shard.expected_prompt_logprobs(&ids(PROMPT));
    assert_eq!(prefill.len(), PROMPT.len());
    assert_eq!(prefill[0], json!({"id": ids("T")[0], "text": "T", "logprob": null}));
    assert_eq!(prefill[3], json!({"id": ids(" ")[0], "text": " ", "logprob": shown(logprobs[3])}));
}

#[tokio::test]
async fn top_tokens_come_likeliest_first_one_list_a_token() {
    let world = World::new().await;
    let answer = generate(&world, json!({"max_new_tokens": 2, "details": true, "top_n_tokens": 3})).await;
    let details = &answer["details"];
    let top = details["top_tokens"].as_array().unwrap();
    assert_eq!(top.len(), 2);
    for (entry, token) in top.iter().zip(details["tokens"].as_array().unwrap()) {
        assert_eq!(entry.as_array().unwrap().len(), 3);
        assert_eq!(entry[0], *token);
        assert!(entry[0]["logprob"].as_f64() > entry[1]["logprob"].as_f64());
    }
}

#[tokio::test]
async fn full_text_begins_with_the_prompt_as_it_was_sent() {
    let world = World::new().await;
    let parameters = json!({"max_new_tokens": 4, "return_full_text": true, "truncate": 3});
    let answer = generate(&world, parameters).await;
    assert_eq!(answer["generated_text"], format!("{PROMPT}{}", world.expected(" is", 4)));
}

#[tokio::test]
async fn truncation_keeps_the_last_tokens() {
    let world = World::new().await;
    let long = format!("{}{PROMPT}", "x".repeat(500));
    let keep = PROMPT.len();
    let body = json!({"inputs": long, "parameters": {"max_new_tokens": 4, "truncate": keep}});
    let answer = world.post("/generate", body).await;
    assert_eq!(answer.json()["generated_text"], world.expected(PROMPT, 4));
    assert_eq!(answer.header("x-prompt-tokens"), keep.to_string());
}

#[tokio::test]
async fn a_stop_string_ends_the_answer_and_stays_in_it() {
    let world = World::new().await;
    let text = world.expected(PROMPT, 20);
    let stop = &text[4..7];
    let end = text.find(stop).unwrap() + 3;
    let parameters = json!({"max_new_tokens": 20, "stop": ["\u{1F980}", stop], "details": true});
    let answer = generate(&world, parameters).await;
    assert_eq!(answer["generated_text"], text[..end]);
    assert_eq!(answer["details"]["finish_reason"], "stop_sequence");
    assert_eq!(answer["details"]["generated_tokens"], end);
}

/// A world where every third token or so ends the answer, and a prompt whose answer ends within `limit` tokens.
async fn world_that_ends() -> World {
    World::with(Setup { choices: [ids("ab"), vec![END]].concat(), ..Setup::default() }).await
}

#[tokio::test]
async fn end_of_sequence_is_a_token_and_no_text() {
    let world = world_that_ends().await;
    let answer = generate(&world, json!({"max_new_tokens": 60, "details": true})).await;
    let expected = world.shard.expected_tokens(&ids(PROMPT), 60);
    let end = expected.iter().position(|&token| token == END).unwrap();
    let details = &answer["details"];
    assert_eq!(details["finish_reason"], "eos_token");
    assert_eq!(details["generated_tokens"], end + 1);
    assert_eq!(details["tokens"][end]["text"], "<|end|>");
    assert_eq!(details["tokens"][end]["special"], true);
    assert_eq!(answer["generated_text"].as_str().unwrap().len(), end);
}

#[tokio::test]
async fn generation_goes_on_past_end_of_sequence_when_told_to() {
    let world = world_that_ends().await;
    let parameters = json!({"max_new_tokens": 60, "details": true, "ignore_eos_token": true});
    let answer = generate(&world, parameters).await;
    assert_eq!(answer["details"]["finish_reason"], "length");
    assert_eq!(answer["details"]["generated_tokens"], 60);
}

#[tokio::test]
async fn without_a_length_the_answer_fills_what_is_left() {
    let world = World::new().await;
    let answer = generate(&world, json!({"details": true})).await;
    assert_eq!(answer["details"]["generated_tokens"], 128 - PROMPT.len());
}

#[tokio::test]
async fn a_seed_that_was_sent_is_shown_when_sampling() {
    let world = World::new().await;
    let sampled = json!({"max_new_tokens": 1, "details": true, "do_sample": true, "seed": 7});
    assert_eq!(generate(&world, sampled).await["details"]["seed"], 7);
    let greedy = json!({"max_new_tokens": 1, "details": true, "seed": 7});
    assert_eq!(generate(&world, greedy).await["details"]["seed"], Value::Null);
}

#[tokio::test]
async fn a_seed_is_drawn_when_sampling_without_one() {
    let world = World::new().await;
    for sampling in
        [json!({"do_sample": true}), json!({"temperature": 0.5}), json!({"top_k": 3}), json!({"top_p": 0.5})]
    {
        let mut parameters = sampling;
        parameters["details"] = json!(true);
        parameters["max_new_tokens"] = json!(1);
        assert!(generate(&world, parameters.clone()).await["details"]["seed"].is_u64(), "{parameters}");
    }
}

#[tokio::test]
async fn best_of_shows_the_other_choices_with_seeds_one_apart() {
    let world = World::new().await;
    let parameters = json!({"max_new_tokens": 2, "best_of": 2, "do_sample": true, "details": true});
    let details = &generate(&world, parameters).await["details"];
    let lost = details["best_of_sequences"].as_array().unwrap();
    assert_eq!(lost.len(), 1);
    let seed = |choice: &Value| choice["seed"].as_u64().unwrap();
    assert_eq!(seed(&lost[0]), seed(details).wrapping_add(1));
    for field in ["generated_text", "finish_reason", "generated_tokens", "seed", "prefill", "tokens"] {
        assert!(lost[0].get(field).is_some(), "{field}");
    }
    world.wait_until_idle().await;
}

#[tokio::test]
async fn the_root_route_answers_an_array_with_the_prompt_in_front() {
    let world = World::new().await;
    let body = json!({"inputs": PROMPT, "parameters": {"max_new_tokens": 4}});
    let text = format!("{PROMPT}{}", world.expected(PROMPT, 4));
    assert_eq!(world.post("/", body).await.json(), json!([{"generated_text": text}]));
}

#[tokio::test]
async fn the_root_route_leaves_the_prompt_out_when_told_to() {
    let world = World::new().await;
    let body = json!({"inputs": PROMPT, "parameters": {"max_new_tokens": 4, "return_full_text": false}});
    assert_eq!(world.post("/", body).await.json()[0]["generated_text"], world.expected(PROMPT, 4));
}

#[tokio::test]
async fn the_root_route_leaves_the_prompt_out_for_models_of_another_task() {
    let world = World::with(Setup { pipeline_tag: Some("summarization".into()), ..Setup::default() }).await;
    let body = json!({"inputs": PROMPT, "parameters": {"max_new_tokens": 4}});
    assert_eq!(world.post("/", body).await.json()[0]["generated_text"], world.expected(PROMPT, 4));
}

fn whole_number(answer: &Answer, header: &str) -> u64 {
    answer.header(header).parse().unwrap_or_else(|_| panic!("{header}: {}", answer.header(header)))
}

#[tokio::test]
async fn headers_are_tgis_in_name_and_unit() {
    let world = World::new().await;
    let answer = world.post("/generate", json!({"inputs": "Käse", "parameters": {"max_new_tokens": 3}})).await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("x-compute-type"), "cpu");
    assert_eq!(whole_number(&answer, "x-compute-characters"), 4);
    assert_eq!(whole_number(&answer, "x-prompt-tokens"), 5);
    assert_eq!(whole_number(&answer, "x-generated-tokens"), 3);
    let seconds: f64 = answer.header("x-compute-time").parse().unwrap();
    assert_eq!((seconds * 1000.0) as u64, whole_number(&answer, "x-total-time"));
    for header in ["x-validation-time", "x-queue-time", "x-inference-time", "x-time-per-token"] {
        assert!(whole_number(&answer, header) <= whole_number(&answer, "x-total-time"), "{header}");
    }
}

#[tokio::test]
async fn a_line_separator_is_escaped_and_comes_back() {
    let world = World::with(Setup { choices: vec![crate::tokenizer::LINE_SEPARATOR], ..Setup::default() }).await;
    let answer = world.post("/generate", json!({"inputs": "x", "parameters": {"max_new_tokens": 2}})).await;
    assert_eq!(answer.text, r#"{"generated_text":"\u2028\u2028"}"#);
}
