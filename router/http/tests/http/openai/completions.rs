//! Whole answers of `/v1/completions`: what is asked and what comes back.

use serde_json::{Value, json};

use super::{PROMPT, complete, completion};
use crate::tokenizer::{END, LINE_SEPARATOR, ids};
use crate::world::{Setup, World};

#[tokio::test]
async fn an_answer_has_openais_shape_and_no_null_is_left_out() {
    let world = World::new().await;
    let answer = complete(&world, json!({})).await;
    let choice = json!({
        "index": 0, "text": world.expected(PROMPT, 4), "logprobs": null, "finish_reason": "length",
    });
    let usage = json!({
        "prompt_tokens": 24, "completion_tokens": 4, "total_tokens": 28, "prompt_tokens_details": {"cached_tokens": 0},
    });
    assert_eq!((&answer["choices"], &answer["usage"]), (&json!([choice]), &usage));
    assert_eq!((&answer["object"], &answer["system_fingerprint"]), (&json!("text_completion"), &json!("0.0.0-native")));
    assert!(answer["id"].as_str().unwrap().len() > "cmpl-".len(), "{answer}");
    assert!(answer["created"].as_u64().unwrap() > 1_700_000_000, "{answer}");
}

#[tokio::test]
async fn the_id_holds_the_requests_id() {
    let world = World::new().await;
    let answer = world.post("/v1/completions", completion(json!({}))).await;
    assert_eq!(answer.json()["id"], format!("cmpl-{}", answer.header("x-request-id")));
}

#[tokio::test]
async fn headers_are_tgis() {
    let world = World::new().await;
    let answer = world.post("/v1/completions", completion(json!({"prompt": ["ab", "c"]}))).await;
    assert_eq!(answer.header("content-type"), "application/json");
    for (name, value) in [
        ("x-compute-type", "cpu"),
        ("x-compute-characters", "3"),
        ("x-prompt-tokens", "3"),
        ("x-generated-tokens", "8"),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    for name in ["x-total-time", "x-validation-time", "x-queue-time", "x-inference-time", "x-time-per-token"] {
        answer.header(name).parse::<u64>().unwrap();
    }
}

#[tokio::test]
async fn a_prompt_may_be_a_text_or_tokens_alone_or_in_a_list() {
    let world = World::new().await;
    let expected = world.expected(PROMPT, 4);
    for prompt in [json!(PROMPT), json!([PROMPT]), json!(ids(PROMPT)), json!([ids(PROMPT)])] {
        let answer = complete(&world, json!({"prompt": prompt})).await;
        assert_eq!(answer["choices"][0]["text"], expected, "{prompt}");
        assert_eq!(answer["usage"]["prompt_tokens"], 24);
    }
}

#[tokio::test]
async fn choices_come_in_the_order_of_the_prompts() {
    let world = World::new().await;
    let prompts = ["a long prompt that needs its time", "b", "cc", "ddd"];
    let answer = complete(&world, json!({"prompt": prompts})).await;
    for (place, prompt) in prompts.iter().enumerate() {
        let choice = &answer["choices"][place];
        assert_eq!((&choice["index"], &choice["text"]), (&json!(place), &json!(world.expected(prompt, 4))));
    }
    let tokens: usize = prompts.iter().map(|prompt| prompt.len()).sum();
    assert_eq!(
        (&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]),
        (&json!(tokens), &json!(16))
    );
}

#[tokio::test]
async fn a_stop_string_is_one_text_or_several_and_is_left_out_of_the_answer() {
    let world = World::new().await;
    let text = world.expected(PROMPT, 20);
    let stop = &text[4..7];
    let at = text.find(stop).unwrap();
    for stops in [json!(stop), json!(["\u{1F980}", stop])] {
        let answer = complete(&world, json!({"max_tokens": 20, "stop": stops})).await;
        assert_eq!(
            (&answer["choices"][0]["text"], &answer["choices"][0]["finish_reason"]),
            (&json!(text[..at]), &json!("stop"))
        );
        assert_eq!(answer["usage"]["completion_tokens"], at + 3);
    }
    let kept = complete(&world, json!({"max_tokens": 20, "stop": stop, "include_stop_str_in_output": true})).await;
    assert_eq!(kept["choices"][0]["text"], text[..at + 3]);
}

#[tokio::test]
async fn an_end_of_sequence_is_a_stop_unless_it_is_ignored() {
    let world = World::with(Setup { choices: [ids("ab"), vec![END]].concat(), ..Setup::default() }).await;
    let answer = complete(&world, json!({"max_tokens": 60})).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert!(!answer["choices"][0]["text"].as_str().unwrap().contains("<|end|>"));
    let ignored = complete(&world, json!({"max_tokens": 60, "ignore_eos": true})).await;
    assert_eq!(
        (&ignored["choices"][0]["finish_reason"], &ignored["usage"]["completion_tokens"]),
        (&json!("length"), &json!(60))
    );
}

#[tokio::test]
async fn an_echo_puts_the_prompt_in_front() {
    let world = World::new().await;
    let text = format!("{PROMPT}{}", world.expected(PROMPT, 4));
    for prompt in [json!(PROMPT), json!([ids(PROMPT)])] {
        assert_eq!(complete(&world, json!({"prompt": prompt, "echo": true})).await["choices"][0]["text"], text);
    }
}

#[tokio::test]
async fn without_a_length_the_answer_fills_what_is_left() {
    let world = World::new().await;
    let answer = complete(&world, json!({"max_tokens": null})).await;
    assert_eq!(answer["usage"]["total_tokens"], 128);
}

#[tokio::test]
async fn cached_tokens_are_told() {
    let world = World::new().await;
    let prompt = "x".repeat(80);
    complete(&world, json!({"prompt": prompt})).await;
    let again = complete(&world, json!({"prompt": prompt})).await;
    let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!((32..80).contains(&cached), "{again}");
}

#[tokio::test]
async fn fields_may_be_null_and_what_is_unknown_is_ignored() {
    let world = World::new().await;
    let fields = [
        "model",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "typical_p",
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "max_completion_tokens",
        "n",
        "best_of",
        "stop",
        "stream",
        "stream_options",
        "seed",
        "ignore_eos",
        "echo",
        "logprobs",
        "suffix",
        "user",
        "metadata",
        "service_tier",
        "priority",
        "response_format",
        "truncate_prompt_tokens",
        "cache_salt",
        "deadline_ms",
        "grammar",
        "tools",
    ];
    let mut body = completion(json!({"max_tokens": 2}));
    fields.iter().for_each(|field| body[field] = Value::Null);
    body["temperature"] = json!(0);
    let answer = world.post("/v1/completions", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // What @huggingface/inference sends to this route.
    let foreign =
        json!({"return_full_text": false, "details": true, "truncate": 3, "parameters": [], "user": {"a": 1}});
    assert_eq!(complete(&world, foreign).await["choices"][0]["text"], world.expected(PROMPT, 4));
}

#[tokio::test]
async fn neutral_values_of_other_servers_are_taken() {
    let world = World::new().await;
    let neutral = json!({
        "temperature": 1.0, "top_p": 1.0, "typical_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1,
        "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "n": 1, "best_of": 1, "suffix": "",
        "response_format": {"type": "text"}, "stream": false, "stream_options": {"include_usage": null}, "stop": [],
    });
    complete(&world, neutral).await;
    complete(&world, json!({"top_k": 0, "temperature": 0.7, "top_p": 0.9, "logit_bias": [0.0, 0.0, 1.5]})).await;
}

#[tokio::test]
async fn temperature_0_is_greedy_whatever_stands_beside_it() {
    let world = World::new().await;
    let body = json!({"temperature": 0.0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "typical_p": 0.5, "seed": 3});
    assert_eq!(complete(&world, body).await["choices"][0]["text"], world.expected(PROMPT, 4));
}

#[tokio::test]
async fn of_two_lengths_the_newer_name_holds() {
    let world = World::new().await;
    let answer = complete(&world, json!({"max_tokens": 9, "max_completion_tokens": 3})).await;
    assert_eq!(answer["usage"]["completion_tokens"], 3);
}

#[tokio::test]
async fn a_seed_may_be_any_whole_number_of_64_bits() {
    let world = World::new().await;
    for seed in [json!(-1), json!(i64::MIN), json!(u64::MAX), json!(0)] {
        complete(&world, json!({"seed": seed, "temperature": 1})).await;
    }
    let answer = world.post("/v1/completions", completion(json!({"seed": 1.5}))).await;
    assert_eq!(answer.json()["error"]["param"], "seed");
}

#[tokio::test]
async fn truncation_keeps_the_last_tokens() {
    let world = World::new().await;
    let answer = complete(&world, json!({"truncate_prompt_tokens": 3})).await;
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["usage"]["prompt_tokens"]),
        (&json!(world.expected(" is", 4)), &json!(3))
    );
}

#[tokio::test]
async fn line_separators_are_escaped() {
    let world = World::with(Setup { choices: vec![LINE_SEPARATOR], ..Setup::default() }).await;
    let answer = world.post("/v1/completions", completion(json!({}))).await;
    assert!(answer.text.contains(r"\u2028") && !answer.text.contains('\u{2028}'), "{}", answer.text);
}

#[tokio::test]
async fn a_huge_prompt_that_no_tokens_could_make_short_enough_is_refused_unread() {
    let world = World::new().await;
    // The longest token has 7 bytes.
    let text = "x".repeat(70_001);
    for prompt in [json!(text), json!(["Hi", text])] {
        let answer = world.post("/v1/completions", completion(json!({"prompt": prompt}))).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "validation"));
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains("Given: at least 10001 `inputs` tokens and 4 `max_new_tokens`"), "{message}");
    }
}
