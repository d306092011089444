//! Numbers in sentences: what a sentence says is the limit is the limit. At each, the last value that is taken, the first
//! that is refused, and what the sentence says.

use headrace_http::{Limits, Surface};
use serde_json::{Value, json};

use crate::openai::{chat, completion, with_template};
use crate::world::{Answer, Setup, World};

const NATIVE: &str = "/generate";
const COMPLETIONS: &str = "/v1/completions";
const CHATS: &str = "/v1/chat/completions";
const INFER: &str = "/v2/models/m/versions/1/infer";

async fn world() -> World {
    let surface = Surface { kserve: true, ..Surface::default() };
    World::with(with_template(Setup { surface, ..Setup::default() })).await
}

fn sentence(answer: &Answer) -> String {
    let error = &answer.json()["error"];
    error["message"].as_str().or(error.as_str()).unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
}

/// A body of the route with these fields, or these parameters.
fn body(path: &str, fields: Value) -> Value {
    match path {
        COMPLETIONS => completion(fields),
        CHATS => chat(fields),
        INFER => fields,
        _ => {
            let mut body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 2}});
            for (name, value) in fields.as_object().unwrap() {
                let place = if name == "inputs" { &mut body } else { &mut body["parameters"] };
                place[name] = value.clone();
            }
            body
        }
    }
}

/// (route, fields that are taken, fields that are not, what the sentence says of it)
type Bound = (&'static str, Value, Value, &'static str);

async fn assert_bounds(world: &World, bounds: impl IntoIterator<Item = Bound>) {
    let mut wrong = Vec::new();
    for (path, taken, refused, said) in bounds {
        let answer = world.post(path, body(path, taken.clone())).await;
        if answer.status != 200 {
            wrong.push(format!("{path} {}: {}", shortened(&taken), answer.text));
        }
        let answer = world.post(path, body(path, refused.clone())).await;
        if answer.status != 422 || !sentence(&answer).contains(said) {
            wrong.push(format!("{path} {}: {} instead of {said:?}", shortened(&refused), answer.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn shortened(fields: &Value) -> String {
    fields.to_string().chars().take(80).collect()
}

/// The number beside this one, further from 0.
fn beyond(number: f32) -> f32 {
    f32::from_bits(number.to_bits() + 1)
}

/// The number beside this one, nearer to 0.
fn within(number: f32) -> f32 {
    f32::from_bits(number.to_bits() - 1)
}

#[tokio::test]
async fn of_parameters() {
    let least = f32::from_bits(1);
    let stops = |count| json!({"stop": vec!["\u{1F980}"; count]});
    let between = "must be >= -2.0 and <= 2.0. Given: ";
    let penalties =
        |name: &str| [(2.0, beyond(2.0)), (-2.0, beyond(-2.0))].map(|(a, b)| (json!({name: a}), json!({name: b})));
    let mut bounds: Vec<Bound> = vec![
        (
            NATIVE,
            json!({"best_of": 2, "do_sample": true}),
            json!({"best_of": 3, "do_sample": true}),
            "must be > 0 and <= 2. G",
        ),
        (NATIVE, json!({"temperature": least}), json!({"temperature": 0}), "must be strictly positive. Given: 0.0"),
        (NATIVE, json!({"repetition_penalty": least}), json!({"repetition_penalty": 0}), "must be strictly positive"),
        (NATIVE, json!({"top_p": least}), json!({"top_p": 0}), "must be > 0.0 and < 1.0"),
        (NATIVE, json!({"top_p": within(1.0)}), json!({"top_p": 1}), "must be > 0.0 and < 1.0"),
        (NATIVE, json!({"typical_p": least}), json!({"typical_p": 0}), "must be > 0.0 and < 1.0"),
        (NATIVE, json!({"typical_p": within(1.0)}), json!({"typical_p": 1}), "must be > 0.0 and < 1.0"),
        (NATIVE, json!({"min_p": 0}), json!({"min_p": -least}), "must be >= 0.0 and <= 1.0"),
        (NATIVE, json!({"min_p": 1}), json!({"min_p": beyond(1.0)}), "must be >= 0.0 and <= 1.0"),
        (NATIVE, json!({"top_k": 1}), json!({"top_k": 0}), "must be strictly positive. Given: 0"),
        (NATIVE, json!({"max_new_tokens": 1}), json!({"max_new_tokens": 0}), "must be strictly positive. Given: 0"),
        (
            NATIVE,
            json!({"max_new_tokens": 123}),
            json!({"max_new_tokens": 124}),
            "must be <= 128. Given: 5 `inputs` tokens and 124",
        ),
        (NATIVE, stops(4), stops(5), "supports up to 4 stop sequences. Given: 5"),
        (NATIVE, json!({"top_n_tokens": 5}), json!({"top_n_tokens": 6}), "must be >= 0 and <= 5. Given: 6"),
        (NATIVE, json!({"logit_bias": {"257": 1}}), json!({"logit_bias": {"258": 1}}), "token ids below 258"),
        (
            NATIVE,
            json!({"logit_bias": {"5": 100}}),
            json!({"logit_bias": {"5": beyond(100.0)}}),
            "must be >= -100.0 and <= 100.0",
        ),
        (
            NATIVE,
            json!({"logit_bias": {"5": -100}}),
            json!({"logit_bias": {"5": beyond(-100.0)}}),
            "must be >= -100.0 and <= 100.0",
        ),
        (NATIVE, json!({"truncate": 1}), json!({"truncate": 0}), "strictly positive and less than 101. Given: 0"),
        (
            NATIVE,
            json!({"truncate": 100}),
            json!({"truncate": 101}),
            "less than 101. Given: 101. At most 100 can be kept",
        ),
        (
            NATIVE,
            json!({"inputs": "x".repeat(100)}),
            json!({"inputs": "x".repeat(101)}),
            "less than 101 tokens. Given: 101. At most 100 are taken",
        ),
        (NATIVE, json!({"cache_salt": "s"}), json!({"cache_salt": ""}), "must have 1 to 64 bytes. Given: 0"),
        (
            NATIVE,
            json!({"cache_salt": "s".repeat(64)}),
            json!({"cache_salt": "s".repeat(65)}),
            "must have 1 to 64 bytes. Given: 65",
        ),
        (NATIVE, json!({"priority": -100}), json!({"priority": -101}), "a whole number from -100 to 100"),
        (NATIVE, json!({"priority": 100}), json!({"priority": 101}), "a whole number from -100 to 100"),
        (
            NATIVE,
            json!({"deadline_ms": u32::MAX}),
            json!({"deadline_ms": 1_u64 << 32}),
            "a whole number from 1 to 4294967295",
        ),
        (
            NATIVE,
            json!({"seed": u64::MAX}),
            json!({"seed": 18_446_744_073_709_551_616.0}),
            "from 0 to 18446744073709551615",
        ),
        (NATIVE, json!({"top_k": i32::MAX}), json!({"top_k": 1_u64 << 31}), "from -2147483648 to 2147483647"),
        (
            NATIVE,
            json!({"temperature": 3.4028235e38}),
            json!({"temperature": 3.4028236e38}),
            "from -3.4028235e38 to 3.4028235e38",
        ),
    ];
    for name in ["frequency_penalty", "presence_penalty"] {
        bounds.extend(penalties(name).map(|(taken, refused)| (NATIVE, taken, refused, between)));
    }
    assert_bounds(&world().await, bounds).await;
}

#[tokio::test]
async fn of_openais_fields() {
    let least = f32::from_bits(1);
    let all = "must be > 0.0 and < 1.0. Given: 1.0000001. 1.0, which keeps all tokens, is taken too";
    let prompts = |count| json!({"prompt": vec!["a"; count]});
    let top = |count| json!({"logprobs": true, "top_logprobs": count});
    let mut bounds: Vec<Bound> = vec![
        (COMPLETIONS, json!({"logprobs": 5}), json!({"logprobs": 6}), "must be >= 0 and <= 5. Given: 6"),
        (CHATS, top(20), top(21), "must be >= 0 and <= 20. Given: 21"),
        (COMPLETIONS, prompts(4), prompts(5), "batch size of 4. Given: 5"),
        (COMPLETIONS, json!({"prompt": [257]}), json!({"prompt": [258]}), "token ids below 258"),
        (
            COMPLETIONS,
            json!({"prompt": ["a", "b"], "n": 4}),
            json!({"prompt": ["a", "b"], "n": 5}),
            "`n` must be > 0 and <= 4",
        ),
        (COMPLETIONS, json!({"best_of": 2}), json!({"best_of": 3}), "must be > 0 and <= 2. Given: 3"),
        (COMPLETIONS, json!({"n": 5, "best_of": 5}), json!({"n": 5, "best_of": 6}), "must be > 0 and <= 5. Given: 6"),
        (
            COMPLETIONS,
            json!({"n": 3, "best_of": 3}),
            json!({"n": 3, "best_of": 2}),
            "must be >= `n`, which is 3. Given: 2",
        ),
        (COMPLETIONS, json!({"prompt": "x".repeat(100)}), json!({"prompt": "x".repeat(101)}), "less than 101 tokens"),
        (
            COMPLETIONS,
            json!({"prompt": "x".repeat(100), "echo": true, "max_tokens": 0}),
            json!({"prompt": "x".repeat(101), "echo": true, "max_tokens": 0}),
            "less than 101 tokens",
        ),
        (
            COMPLETIONS,
            json!({"seed": i64::MIN}),
            json!({"seed": -9_223_372_036_854_779_000.0}),
            "from -9223372036854775808 to 18446744073709551615",
        ),
    ];
    for path in [COMPLETIONS, CHATS] {
        bounds.extend([
            (
                path,
                json!({"temperature": 0}),
                json!({"temperature": -least}),
                "0.0, which is greedy decoding, is taken too",
            ),
            (path, json!({"top_p": 1}), json!({"top_p": beyond(1.0)}), all),
            (path, json!({"top_p": least}), json!({"top_p": 0}), "must be > 0.0 and < 1.0"),
            (path, json!({"typical_p": 1}), json!({"typical_p": beyond(1.0)}), all),
            (path, json!({"top_k": -1}), json!({"top_k": -2}), "0 and -1, which keep all tokens, are taken too"),
            (path, json!({"n": 8}), json!({"n": 9}), "`n` must be > 0 and <= 8 for this request. Given: 9"),
            (path, json!({"n": 1}), json!({"n": 0}), "`n` must be > 0 and <= 8 for this request. Given: 0"),
            (path, json!({"max_tokens": 1}), json!({"max_tokens": 0}), "must be strictly positive. Given: 0"),
            (
                path,
                json!({"stop": vec!["\u{1F980}"; 4]}),
                json!({"stop": vec!["\u{1F980}"; 5]}),
                "up to 4 stop sequences",
            ),
            (path, json!({"truncate_prompt_tokens": 100}), json!({"truncate_prompt_tokens": 101}), "less than 101"),
        ]);
    }
    assert_bounds(&world().await, bounds).await;
}

#[tokio::test]
async fn of_choices_that_stream() {
    let world = world().await;
    let ask = |best_of| completion(json!({"n": 2, "best_of": best_of, "stream": true}));
    assert_eq!(world.post(COMPLETIONS, ask(2)).await.status, 200);
    let refused = world.post(COMPLETIONS, ask(3)).await;
    assert!(
        sentence(&refused).contains("`best_of` > `n`, which is 2, is not supported when streaming"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn of_all_that_may_run_at_once() {
    let limits =
        Limits { max_concurrent_requests: 4, max_best_of: 9, max_client_batch_size: 9, ..Setup::default().limits };
    let surface = Surface { kserve: true, ..Surface::default() };
    let world = World::with(Setup { limits, surface, ..Setup::default() }).await;
    let inputs = |count| json!({"inputs": vec![json!({"name": "a", "data": ["x"]}); count]});
    let prompts = |count| json!({"prompt": vec!["x"; count]});
    let sampled = |best_of| json!({"best_of": best_of, "do_sample": true, "max_new_tokens": 2});
    let drawn = |best_of| json!({"inputs": [{"name": "a", "data": ["x"]}], "parameters": sampled(best_of)});
    let two = |best_of| json!({"prompt": ["a", "b"], "best_of": best_of, "temperature": 1});
    assert_bounds(
        &world,
        [
            (INFER, inputs(4), inputs(5), "supports up to 4 inputs. Given: 5"),
            (INFER, drawn(4), drawn(5), "`best_of` must be > 0 and <= 4 for this request. Given: 5"),
            (NATIVE, sampled(4), sampled(5), "`best_of` must be > 0 and <= 4 for this request. Given: 5"),
            (COMPLETIONS, two(2), two(3), "`best_of` must be > 0 and <= 2 for this request. Given: 3"),
            // Of two limits the smaller is the one that holds.
            (NATIVE, sampled(4), sampled(10), "`best_of` must be > 0 and <= 4 for this request. Given: 10"),
            (COMPLETIONS, two(2), two(10), "`best_of` must be > 0 and <= 2 for this request. Given: 10"),
            (
                COMPLETIONS,
                prompts(4),
                prompts(5),
                "batch size of 4. Given: 5. Send fewer, or raise --max-concurrent-requests",
            ),
        ],
    )
    .await;
    let refused = world.post(COMPLETIONS, completion(two(3))).await;
    assert_eq!(refused.json()["error"]["param"], "best_of");
}
