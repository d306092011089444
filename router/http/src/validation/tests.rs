use serde_json::{Value, json};

use super::*;
use crate::parameters::GenerateBody;

const MODEL: Model<'static> = Model { id: "org/model", vocab_size: 100 };

fn limits() -> Limits {
    Limits { max_input_tokens: 1000, max_total_tokens: 1024, ..Limits::default() }
}

/// Parameters as a client sends them.
fn given(parameters: Value) -> Parameters {
    let body: GenerateBody = serde_json::from_value(json!({"inputs": "x", "parameters": parameters})).unwrap();
    body.parameters.0
}

/// All of validation, for a prompt that has one token per byte.
fn validate(inputs: &str, parameters: &Parameters, delivery: Delivery) -> Result<(Checked, Tokens), Invalid> {
    let limits = limits();
    let best_of = best_of(parameters, &limits, delivery)?;
    let checked = check(inputs.is_empty(), parameters, best_of, &limits, MODEL, delivery, 42)?;
    let input = checked.truncate.map_or(inputs.len(), |keep| inputs.len().min(keep as usize));
    let fitted = fit(input, &checked, &limits)?;
    Ok((checked, fitted))
}

fn sampling(parameters: Value) -> Sampling {
    validate("x", &given(parameters), Delivery::Whole).unwrap().0.sampling
}

/// Every fault there is, worst first; mending the first one brings up the second one's message, and so on.
#[test]
fn faults_are_told_in_tgis_order() {
    let faults = [
        ("best_of", json!(9), json!(2), "`best_of` must be > 0"),
        ("do_sample", json!(false), json!(true), "you must use sampling"),
        ("temperature", json!(0), json!(null), "`temperature`"),
        ("repetition_penalty", json!(0), json!(null), "`repetition_penalty`"),
        ("frequency_penalty", json!(3), json!(null), "`frequency_penalty`"),
        ("presence_penalty", json!(3), json!(null), "`presence_penalty`"),
        ("top_p", json!(1), json!(null), "`top_p`"),
        ("typical_p", json!(1), json!(null), "`typical_p`"),
        ("min_p", json!(2), json!(null), "`min_p`"),
        ("top_k", json!(0), json!(null), "`top_k`"),
        ("max_new_tokens", json!(0), json!(2000), "`max_new_tokens`"),
        ("stop", json!(["", "", "", "", ""]), json!([]), "`stop`"),
        ("seed", json!(1), json!(null), "`seed`"),
        ("top_n_tokens", json!(6), json!(null), "`top_n_tokens`"),
        ("logit_bias", json!({"100": 1}), json!(null), "`logit_bias`"),
        ("watermark", json!(true), json!(false), "`watermark`"),
        ("adapter_id", json!("other"), json!(null), "`adapter_id`"),
    ];
    let mut parameters = json!({"grammar": {"type": "regex", "value": "x"}, "truncate": 0});
    for (field, bad, _, _) in &faults {
        parameters[field] = bad.clone();
    }
    // Sampling parameters ask for sampling: the second fault shows only without them.
    let greedy = given(json!({"best_of": 2, "repetition_penalty": 0}));
    assert_eq!(validate("x", &greedy, Delivery::Whole), Err(Invalid::BestOfSampling));

    let mut told = Vec::new();
    for (field, _, good, sentence) in &faults {
        if *field != "do_sample" {
            let error = validate("", &given(parameters.clone()), Delivery::Whole).unwrap_err().to_string();
            assert!(error.starts_with(sentence), "{field}: {error}");
            told.push(error);
        }
        parameters[field] = good.clone();
    }
    assert_eq!(told.len(), faults.len() - 1);

    let long = "x".repeat(1001);
    let mut next = |inputs: &str, field: &str, value: Value, sentence: &str| {
        let error = validate(inputs, &given(parameters.clone()), Delivery::Whole).unwrap_err().to_string();
        assert!(error.starts_with(sentence), "{field}: {error}");
        parameters[field] = value;
    };
    next("", "truncate", json!(0), "`inputs` cannot be empty");
    next(&long, "truncate", json!(null), "`truncate`");
    next(&long, "max_new_tokens", json!(1), "`inputs` tokens + `max_new_tokens` must be <= 1024. Given: 1001 `inputs`");
    next(&long, "truncate", json!(1000), "`inputs` must have less than 1001 tokens. Given: 1001");
    next(&long, "grammar", json!(null), "grammar is not supported");
    validate(&long, &given(parameters), Delivery::Whole).unwrap();
}

#[test]
fn streams_refuse_best_of_and_prefill_details_before_all_else() {
    let faulty = given(json!({"best_of": 2, "decoder_input_details": true, "temperature": 0}));
    assert_eq!(validate("", &faulty, Delivery::Stream), Err(Invalid::BestOfStream { given: 2 }));
    let faulty = given(json!({"decoder_input_details": true, "temperature": 0}));
    assert_eq!(validate("", &faulty, Delivery::Stream), Err(Invalid::PrefillDetailsStream));
}

#[test]
fn best_of_zero_is_one_for_whole_answers_alone() {
    let parameters = given(json!({"best_of": 0}));
    assert_eq!(best_of(&parameters, &limits(), Delivery::Whole), Ok(1));
    assert_eq!(best_of(&parameters, &limits(), Delivery::Stream), Err(Invalid::BestOfStream { given: 0 }));
}

#[test]
fn without_parameters_a_request_samples_and_with_empty_ones_it_is_greedy() {
    let body: GenerateBody = serde_json::from_value(json!({"inputs": "x"})).unwrap();
    assert!(body.parameters.0.do_sample);
    assert_eq!(sampling(json!({})).temperature, 0.0);
}

#[test]
fn any_active_warper_samples_and_an_inactive_one_does_not() {
    for (warper, temperature) in [
        (json!({"temperature": 0.7}), 0.7),
        (json!({"temperature": 1.0}), 0.0),
        (json!({"temperature": 1.0, "do_sample": true}), 1.0),
        (json!({"top_k": 5}), 1.0),
        (json!({"top_p": 0.9}), 1.0),
        (json!({"typical_p": 0.9}), 1.0),
        (json!({"min_p": 0.1}), 1.0),
        (json!({"min_p": 0}), 0.0),
        (json!({"repetition_penalty": 2}), 0.0),
    ] {
        assert_eq!(sampling(warper.clone()).temperature, temperature, "{warper}");
    }
}

#[test]
fn sampling_carries_every_parameter() {
    let asked = sampling(json!({
        "temperature": 0.5, "top_k": 7, "top_p": 0.25, "typical_p": 0.5, "min_p": 0.125, "repetition_penalty": 1.5,
        "frequency_penalty": -1.5, "presence_penalty": 0.5, "seed": 9, "logit_bias": {"3": -100, "4": 2},
        "top_n_tokens": 4, "details": true, "decoder_input_details": true,
    }));
    let expected = Sampling {
        temperature: 0.5,
        top_k: 7,
        top_p: Some(0.25),
        typical_p: Some(0.5),
        min_p: Some(0.125),
        repetition_penalty: Some(1.5),
        frequency_penalty: -1.5,
        presence_penalty: 0.5,
        seed: 9,
        logit_bias: vec![(3, -100.0), (4, 2.0)],
        logprobs: true,
        top_n: 4,
        prompt_logprobs: true,
    };
    assert_eq!(asked, expected);
}

#[test]
fn nothing_is_computed_that_nobody_will_see() {
    let plain = sampling(json!({"top_n_tokens": 3, "repetition_penalty": 1.0}));
    assert_eq!((plain.logprobs, plain.top_n, plain.repetition_penalty), (false, 0, None));
    let streamed = validate("x", &given(json!({"top_n_tokens": 3})), Delivery::Stream).unwrap().0.sampling;
    assert_eq!((streamed.logprobs, streamed.top_n), (true, 3));
    assert!(sampling(json!({"best_of": 2, "do_sample": true})).logprobs, "the best has to be found");
}

#[test]
fn a_seed_is_drawn_where_there_is_none_and_shown_only_when_sampling() {
    let (greedy, _) = validate("x", &given(json!({})), Delivery::Whole).unwrap();
    assert_eq!((greedy.sampling.seed, greedy.shown_seed(0)), (42, None));
    let (sampled, _) = validate("x", &given(json!({"do_sample": true})), Delivery::Whole).unwrap();
    assert_eq!(sampled.shown_seed(0), Some(42));
}

#[test]
fn seeds_of_choices_wrap_around() {
    let (checked, _) = validate("x", &given(json!({"do_sample": true, "seed": u64::MAX})), Delivery::Whole).unwrap();
    assert_eq!(checked.shown_seed(1), Some(0));
}

#[test]
fn a_missing_length_takes_what_is_left_of_the_total() {
    let (_, fitted) = validate("xxxx", &given(json!({})), Delivery::Whole).unwrap();
    assert_eq!(fitted, Tokens(1020));
}

#[test]
fn details_of_the_prompt_imply_details() {
    let (checked, _) = validate("x", &given(json!({"decoder_input_details": true})), Delivery::Whole).unwrap();
    assert!(checked.details);
}

#[test]
fn too_many_biased_tokens_are_refused() {
    let bias = |tokens| (0..tokens).map(|id| (id.to_string(), json!(1))).collect::<serde_json::Map<_, _>>();
    let refused = validate("x", &given(json!({"logit_bias": bias(1025)})), Delivery::Whole);
    assert_eq!(refused, Err(Invalid::LogitBiasSize { max: 1024, given: 1025 }));
    assert_eq!(check_logit_bias(&given(json!({"logit_bias": bias(1024)})), 5000), Ok(()));
}

#[test]
fn the_log_line_names_parameters_and_no_text() {
    let parameters = given(json!({"stop": ["secret"], "do_sample": true, "temperature": 0.5, "max_new_tokens": 8}));
    let shown = validate("hidden", &parameters, Delivery::Whole).unwrap().0.to_string();
    assert!(shown.contains("temperature=0.5") && shown.contains("max_new_tokens=8") && shown.contains("stop=1"));
    assert!(!shown.contains("secret") && !shown.contains("hidden"), "{shown}");
}

#[test]
fn a_prompt_that_is_too_long_for_sure_is_refused_before_it_is_counted() {
    let checked = |parameters| validate("x", &given(parameters), Delivery::Whole).unwrap().0;
    let refused =
        |least, parameters| fit_at_least(Some(least), &checked(parameters), &limits()).err().map(|e| e.to_string());
    assert_eq!(refused(1000, json!({})), None);
    let said = refused(1001, json!({"max_new_tokens": 1})).unwrap();
    assert!(said.starts_with("`inputs` must have less than 1001 tokens. Given: at least 1001."), "{said}");
    assert_eq!(refused(1000, json!({"max_new_tokens": 24})), None);
    let said = refused(1000, json!({"max_new_tokens": 25})).unwrap();
    assert!(said.contains("Given: at least 1000 `inputs` tokens and 25 `max_new_tokens`"), "{said}");
    assert_eq!(refused(1_000_000, json!({"truncate": 10})), None, "its end may be short enough");
    let none = Checked { max_new_tokens: Some(2000), ..checked(json!({})) };
    assert_eq!(fit_at_least(None, &none, &limits()), Ok(()), "nobody knows");
}
