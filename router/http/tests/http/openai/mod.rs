//! OpenAI's routes.

mod chat;
mod choices;
mod completions;
mod errors;
mod logprobs;
mod models;
mod streams;

use headrace_text::chat::{ChatTemplates, DEFAULT};
use serde_json::{Value, json};

use crate::world::{Answer, Setup, World};

pub const PROMPT: &str = "The capital of France is";

/// A world with a template whose prompts are easy to write down: `[user]Hi[assistant]`.
pub fn with_template(setup: Setup) -> Setup {
    let source = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}\
                  {% if add_generation_prompt %}[assistant]{% endif %}";
    let sources = [(DEFAULT.to_owned(), source.to_owned())].into();
    Setup { chat_templates: ChatTemplates::parse(&sources, serde_json::Map::new()), ..setup }
}

pub async fn chat_world() -> World {
    World::with(with_template(Setup::default())).await
}

/// What the template makes of one message of the user.
pub fn chat_prompt(text: &str) -> String {
    format!("[user]{text}[assistant]")
}

/// The fields of `body` over those that every test needs.
pub fn completion(body: Value) -> Value {
    over(json!({"prompt": PROMPT, "max_tokens": 4, "temperature": 0}), body)
}

pub fn chat(body: Value) -> Value {
    over(json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}), body)
}

fn over(mut fields: Value, body: Value) -> Value {
    for (name, value) in body.as_object().unwrap() {
        fields[name] = value.clone();
    }
    fields
}

pub async fn complete(world: &World, body: Value) -> Value {
    ok(world.post("/v1/completions", completion(body)).await)
}

pub async fn converse(world: &World, body: Value) -> Value {
    ok(world.post("/v1/chat/completions", chat(body)).await)
}

fn ok(answer: Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// The chunks of a stream, which ends with `[DONE]`.
pub fn chunks(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let (events, rest) = answer.text.split_once("data: [DONE]\n\n").expect("it ends with [DONE]");
    assert_eq!(rest, "");
    let events = events.split_terminator("\n\n");
    events.map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
}
