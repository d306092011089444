//! Parameters that are wrong: 422 with TGI's sentence first, on every route that generates.

use serde_json::{Value, json};

use crate::tokenizer::VOCAB_SIZE;
use crate::world::{MAX_INPUT, Setup, World};

async fn refusal(world: &World, parameters: Value) -> String {
    let body = json!({"inputs": "Hello", "parameters": parameters});
    let whole = world.post("/generate", body.clone()).await;
    assert_eq!(
        (whole.status.as_u16(), whole.error_type().as_str()),
        (422, "validation"),
        "{parameters}: {}",
        whole.text
    );
    let compat = world.post("/", body).await;
    assert_eq!(compat.error(), whole.error());
    whole.error()
}

/// Wrong types: the path of the field and what was expected.
#[tokio::test]
async fn a_wrong_type_names_the_field_and_what_it_takes() {
    let world = World::new().await;
    let count = "a whole number from 0 to 4294967295";
    let seed = "a whole number from 0 to 18446744073709551615";
    let top_k = "a whole number from -2147483648 to 2147483647";
    let number = "a number from -3.4028235e38 to 3.4028235e38";
    let mut cases = Vec::new();
    for (fields, expected, bad) in [
        (&["best_of", "max_new_tokens", "truncate", "top_n_tokens"][..], count, vec![json!(-1), json!(4294967296u64)]),
        (&["seed"], seed, vec![json!(-1), json!(1e20)]),
        (&["top_k"], top_k, vec![json!(2147483648u64)]),
        (&["priority"], "a whole number from -100 to 100", vec![json!(-101), json!(101), json!(1e20)]),
        (&["deadline_ms"], "a whole number from 1 to 4294967295", vec![json!(0), json!(-1), json!(4294967296u64)]),
    ] {
        for field in fields {
            let bad = bad.iter().cloned().chain([json!(3.5), json!("8"), json!(true), json!([]), json!({})]);
            cases.extend(bad.map(|value| (*field, value, expected)));
        }
    }
    let numbers =
        ["temperature", "repetition_penalty", "frequency_penalty", "presence_penalty", "top_p", "typical_p", "min_p"];
    for field in numbers {
        let bad = [json!("hot"), json!(true), json!([0.5]), json!({}), json!(1e39), json!(-1e300)];
        cases.extend(bad.into_iter().map(|value| (field, value, number)));
    }
    for field in ["do_sample", "watermark", "details", "decoder_input_details"] {
        let bad = [json!("yes"), json!(1), json!(null), json!([])];
        cases.extend(bad.into_iter().map(|value| (field, value, "expected a boolean")));
    }
    for field in ["return_full_text", "ignore_eos_token"] {
        cases.extend([json!("no"), json!(0), json!([])].into_iter().map(|value| (field, value, "expected a boolean")));
    }
    cases
        .extend([json!("text"), json!(null), json!(5)].into_iter().map(|value| ("stop", value, "expected a sequence")));
    for field in ["adapter_id", "cache_salt"] {
        cases.extend([json!(5), json!(["a"])].into_iter().map(|value| (field, value, "expected a string")));
    }
    cases.extend([json!("x"), json!([1.0])].into_iter().map(|value| ("logit_bias", value, "expected a map")));
    cases.extend([json!("x"), json!(["regex", "x"])].into_iter().map(|value| ("grammar", value, "a JSON object")));
    for (field, value, expected) in cases {
        let error = refusal(&world, json!({field: value})).await;
        assert!(error.starts_with(&format!("Input validation error: `parameters.{field}`")), "{value}: {error}");
        assert!(error.contains(expected), "{value}: {error}");
    }
}

#[tokio::test]
async fn a_wrong_entry_is_named_with_its_place() {
    let world = World::new().await;
    for (parameters, path) in [
        (json!({"stop": ["a", 1]}), "`parameters.stop[1]`"),
        (json!({"logit_bias": {"5": "x"}}), "`parameters.logit_bias.5`"),
        (json!({"logit_bias": {"five": 1.0}}), "`parameters.logit_bias"),
        (json!({"grammar": {"type": "bnf", "value": "x"}}), "`parameters.grammar"),
        (json!({"grammar": {"type": "regex", "value": 5}}), "`parameters.grammar"),
        (json!({"grammar": {"type": "regex"}}), "`parameters.grammar"),
        (json!({"grammar": {"value": "x"}}), "`parameters.grammar"),
        (json!({"grammar": {"type": "json_schema", "value": {"name": "x"}}}), "`parameters.grammar"),
    ] {
        let error = refusal(&world, parameters.clone()).await;
        assert!(error.contains(path), "{parameters}: {error}");
    }
}

/// Values out of range: TGI's sentence, word for word, and then the value.
#[tokio::test]
async fn a_value_out_of_range_gets_tgis_sentence_and_what_was_given() {
    let world = World::new().await;
    let vocabulary = format!("`logit_bias` must name token ids below {VOCAB_SIZE}");
    for (parameters, sentence, given) in [
        (json!({"best_of": 9, "do_sample": true}), "`best_of` must be > 0 and <= 2. Given: 9", "raise --max-best-of"),
        (json!({"best_of": 2}), "you must use sampling when `best_of` is > 1", "`do_sample`"),
        (json!({"best_of": 2, "do_sample": true, "seed": 1}), "`seed` must not be set when `best_of` > 1", "Leave one"),
        (json!({"temperature": 0}), "`temperature` must be strictly positive", "Given: 0.0"),
        (json!({"temperature": -0.5}), "`temperature` must be strictly positive", "Given: -0.5"),
        (json!({"repetition_penalty": 0}), "`repetition_penalty` must be strictly positive", "Given: 0.0"),
        (json!({"frequency_penalty": 3}), "`frequency_penalty` must be >= -2.0 and <= 2.0", "Given: 3.0"),
        (json!({"frequency_penalty": -2.5}), "`frequency_penalty` must be >= -2.0 and <= 2.0", "Given: -2.5"),
        (json!({"presence_penalty": 3}), "`presence_penalty` must be >= -2.0 and <= 2.0", "Given: 3.0"),
        (json!({"top_p": 0}), "`top_p` must be > 0.0 and < 1.0", "Given: 0.0"),
        (json!({"top_p": 1.0}), "`top_p` must be > 0.0 and < 1.0", "Given: 1.0"),
        (json!({"typical_p": 0}), "`typical_p` must be > 0.0 and < 1.0", "Given: 0.0"),
        (json!({"typical_p": 1}), "`typical_p` must be > 0.0 and < 1.0", "Given: 1.0"),
        (json!({"min_p": -0.1}), "`min_p` must be >= 0.0 and <= 1.0", "Given: -0.1"),
        (json!({"min_p": 1.1}), "`min_p` must be >= 0.0 and <= 1.0", "Given: 1.1"),
        (json!({"top_k": 0}), "`top_k` must be strictly positive", "Given: 0"),
        (json!({"top_k": -3}), "`top_k` must be strictly positive", "Given: -3"),
        (json!({"max_new_tokens": 0}), "`max_new_tokens` must be strictly positive", "Given: 0"),
        (json!({"stop": ["a", "b", "c", "d", "e"]}), "`stop` supports up to 4 stop sequences. Given: 5", "--max-stop"),
        (json!({"top_n_tokens": 6}), "`top_n_tokens` must be >= 0 and <= 5. Given: 6", "raise --max-top-n-tokens"),
        (json!({"logit_bias": {"258": 1}}), vocabulary.as_str(), "Given: 258"),
        (json!({"logit_bias": {"5": 101}}), "`logit_bias` must be >= -100.0 and <= 100.0", "101.0 for token 5"),
        (json!({"watermark": true}), "`watermark` is not supported", "Leave it out"),
        (json!({"adapter_id": "a/b"}), "`adapter_id`: adapters are not available in this version", "\"a/b\""),
        (json!({"truncate": 0}), "`truncate` must be strictly positive and less than 101. Given: 0", "leave it out"),
        (json!({"truncate": 101}), "`truncate` must be strictly positive and less than 101. Given: 101", "--max-input"),
        (
            json!({"max_new_tokens": 1_000_000}),
            "`inputs` tokens + `max_new_tokens` must be <= 128. Given: 5 `inputs` tokens and 1000000 `max_new_tokens`",
            "lower `max_new_tokens`",
        ),
        (json!({"grammar": {"type": "regex", "value": "[0-9]"}}), "grammar is not supported", "not available"),
        (
            json!({"grammar": {"value": {"properties": {}}, "type": "json_object"}}),
            "grammar is not supported",
            "grammar",
        ),
        (json!({"grammar": {"type": "json_schema", "value": {"schema": {}}}}), "grammar is not supported", "grammar"),
    ] {
        let error = refusal(&world, parameters.clone()).await;
        let said = error.strip_prefix("Input validation error: ").unwrap();
        assert!(said.starts_with(sentence), "{parameters}: {error}");
        assert!(said.contains(given), "{parameters}: {error}");
    }
}

#[tokio::test]
async fn what_lies_on_the_border_is_taken() {
    let world = World::new().await;
    for parameters in [
        json!({"frequency_penalty": -2, "presence_penalty": 2.0}),
        json!({"min_p": 0}),
        json!({"min_p": 1}),
        json!({"top_p": 0.999, "typical_p": 1e-6, "top_k": 1, "temperature": 1e-6}),
        json!({"seed": u64::MAX}),
        json!({"seed": 0}),
        json!({"stop": ["a", "b", "c", "d"]}),
        json!({"stop": []}),
        json!({"truncate": MAX_INPUT}),
        json!({"truncate": 1}),
        json!({"top_n_tokens": 0}),
        json!({"top_n_tokens": 5}),
        json!({"logit_bias": {}}),
        json!({"logit_bias": {"0": -100, "257": 100.0}}),
        json!({"adapter_id": ""}),
        json!({"adapter_id": "org/model"}),
        json!({"best_of": 0}),
        json!({"best_of": 1}),
        json!({"watermark": false}),
        json!({"best_of": null, "temperature": null, "repetition_penalty": null, "frequency_penalty": null,
               "presence_penalty": null, "top_k": null, "top_p": null, "typical_p": null, "min_p": null,
               "logit_bias": null, "ignore_eos_token": null, "return_full_text": null, "truncate": null,
               "seed": null, "top_n_tokens": null, "grammar": null, "adapter_id": null}),
    ] {
        let mut body = json!({"inputs": "Hello", "parameters": parameters});
        body["parameters"]["max_new_tokens"] = json!(2);
        let answer = world.post("/generate", body.clone()).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
    }
}

#[tokio::test]
async fn empty_inputs_are_refused() {
    let answer = World::new().await.post("/generate", json!({"inputs": ""})).await;
    assert_eq!(answer.status, 422);
    assert!(answer.error().starts_with("Input validation error: `inputs` cannot be empty"), "{}", answer.error());
}

#[tokio::test]
async fn a_prompt_of_exactly_the_limit_runs_and_one_token_more_is_told_both_numbers() {
    let world = World::new().await;
    let ask = |length: usize| json!({"inputs": "a".repeat(length), "parameters": {"max_new_tokens": 2}});
    assert_eq!(world.post("/generate", ask(100)).await.status, 200);
    let answer = world.post("/generate", ask(101)).await;
    let sentence = "Input validation error: `inputs` must have less than 101 tokens. Given: 101";
    assert!(answer.error().starts_with(sentence), "{}", answer.error());
}

#[tokio::test]
async fn the_total_comes_before_the_prompts_own_limit_as_in_tgi() {
    let answer = World::new().await.post("/generate", json!({"inputs": "a".repeat(200)})).await;
    assert_eq!(answer.status, 422);
    let sentence =
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 128. Given: 200 `inputs` tokens";
    assert!(answer.error().starts_with(sentence), "{}", answer.error());
}

#[tokio::test]
async fn prompt_and_answer_may_fill_the_total_exactly() {
    let world = World::new().await;
    let ask = |new: u32| json!({"inputs": "a".repeat(28), "parameters": {"max_new_tokens": new, "details": true}});
    let fits = world.post("/generate", ask(100)).await;
    assert_eq!(fits.json()["details"]["generated_tokens"], 100);
    assert_eq!(world.post("/generate", ask(101)).await.status, 422);
}

#[tokio::test]
async fn a_long_prompt_is_counted_exactly() {
    let body = json!({"inputs": "word ".repeat(13_000), "parameters": {"max_new_tokens": 1}});
    let answer = World::new().await.post("/generate", body).await;
    assert_eq!(answer.status, 422);
    assert!(answer.error().contains("Given: 65000 `inputs` tokens"), "{}", answer.error());
}

#[tokio::test]
async fn best_of_can_be_switched_off() {
    let mut setup = Setup::default();
    setup.limits.max_best_of = 1;
    let world = World::with(setup).await;
    let error = refusal(&world, json!({"best_of": 2, "do_sample": true})).await;
    assert!(error.contains("`best_of` != 1 is not allowed for this endpoint"), "{error}");
}

#[tokio::test]
async fn a_huge_prompt_that_no_tokens_could_make_short_enough_is_refused_unread() {
    let world = World::new().await;
    // The longest token has 7 bytes.
    let text = "x".repeat(70_001);
    for (path, parameters, told) in [
        ("/generate", json!({}), "Given: at least 10001 `inputs` tokens"),
        ("/", json!({"max_new_tokens": 5}), "Given: at least 10001 `inputs` tokens and 5 `max_new_tokens`"),
    ] {
        let answer = world.post(path, json!({"inputs": text, "parameters": parameters})).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (422, "validation"));
        assert!(answer.error().contains(told), "{}", answer.error());
    }
    let truncated = json!({"inputs": text, "parameters": {"truncate": 5, "max_new_tokens": 1}});
    assert_eq!(world.post("/generate", truncated).await.status, 200);
}
