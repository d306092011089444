//! Chat templates as flags and files bring them, in a real process.

mod harness;

use std::fs;

use harness::{Headrace, post, text, tiny_model};

const CHAT: &str = r#"{"messages": [{"role": "user", "content": "once </s>"}]}"#;

fn router(model: &tempfile::TempDir, more: &[&str]) -> (Headrace, String) {
    let flags = ["router", "--fake-shard", "--hostname", "127.0.0.1", "--port", "0", "--model-id", text(model.path())];
    let mut router = Headrace::start(&[&flags, more].concat());
    let address = router.address();
    (router, address)
}

fn chat_tokenize(address: &str) -> serde_json::Value {
    let (status, body) = post(address, "/chat_tokenize", CHAT);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

#[test]
fn a_template_of_a_flag_replaces_the_models() {
    let model = tiny_model();
    fs::write(model.path().join("chat_template.jinja"), "model").expect("a file");
    let file = model.path().join("mine.jinja");
    fs::write(&file, "{{ messages[0].content }} upon").expect("a file");
    let (_router, address) = router(&model, &["--chat-template", text(&file)]);
    assert_eq!(chat_tokenize(&address)["templated_text"], "once </s> upon");
}

#[test]
fn a_template_that_does_not_parse_is_one_warning_and_refuses_chats_alone() {
    let model = tiny_model();
    fs::write(model.path().join("chat_template.jinja"), "{% if %}").expect("a file");
    let (router, address) = router(&model, &[]);
    let log = router.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("chat template")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("WARN") && warnings[0].contains("default"), "{log}");
    let (status, body) = post(&address, "/chat_tokenize", CHAT);
    assert!(status == 422 && body.contains("template_error"), "{status} {body}");
    let generate = r#"{"inputs": "once upon", "parameters": {"max_new_tokens": 2}}"#;
    assert_eq!(post(&address, "/generate", generate).0, 200);
}

#[test]
fn a_flag_keeps_special_tokens_out_of_messages() {
    let model = tiny_model();
    fs::write(model.path().join("chat_template.jinja"), "{{ messages[0].content }} upon </s>").expect("a file");
    let ids = |address: &str| {
        let tokens = chat_tokenize(address)["tokenize_response"].as_array().expect("a list").clone();
        tokens.iter().map(|token| token["id"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    let (_open, address) = router(&model, &[]);
    assert_eq!(ids(&address), [1, 0, 2, 0]);
    // What the user typed is characters that the vocabulary does not have.
    let (_guarded, address) = router(&model, &["--no-special-tokens-in-messages"]);
    assert_eq!(ids(&address), [1, 7, 7, 7, 7, 2, 0]);
}

#[test]
fn a_template_file_that_is_not_there_is_named_with_its_flag() {
    let model = tiny_model();
    let flags = ["router", "--fake-shard", "--model-id", text(model.path()), "--chat-template", "/no/such.jinja"];
    let ended = Headrace::start(&flags).wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error_line().contains("--chat-template /no/such.jinja"), "{}", ended.stderr);
}
