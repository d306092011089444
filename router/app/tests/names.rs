//! The names of Text Generation Inference's programs, as links to the binary and as its first word.

mod harness;

use std::path::PathBuf;

use harness::{Headrace, get, text, tiny_model};
use tempfile::TempDir;

/// A link to the binary by another name.
fn link(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let link = dir.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_headrace"), &link).expect("a link");
    (dir, link)
}

#[test]
fn under_the_launchers_name_the_binary_serves() {
    let (_dir, launcher) = link("text-generation-launcher");
    let ended = Headrace::start_as(&launcher, &["--model-id", "/no/such/model"], &[]).wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error().contains("--model-id /no/such/model"), "{}", ended.stderr);
}

#[test]
fn the_launchers_name_may_also_be_the_first_word() {
    let ended = Headrace::start(&["text-generation-launcher", "--model-id", "/no/such/model"]).wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error().contains("--model-id /no/such/model"), "{}", ended.stderr);
}

#[test]
fn under_the_routers_name_the_binary_routes() {
    let model = tiny_model();
    let (_dir, router) = link("text-generation-router");
    let flags = ["--tokenizer-name", text(model.path()), "--fake-shard", "--hostname", "127.0.0.1", "--port", "0"];
    let mut router = Headrace::start_as(&router, &flags, &[]);
    router.address();
}

#[test]
fn the_router_looks_for_its_shard_where_text_generation_server_listens() {
    let model = tiny_model();
    let words = ["config", "text-generation-router", "--tokenizer-name", text(model.path())];
    let shown = Headrace::start_with(&words, &[("TMPDIR", text(model.path()))]).output();
    let socket = shown.lines().find(|line| line.contains("master-shard-uds-path")).expect("a line");
    assert!(socket.contains(text(&model.path().join("text-generation-server-0"))), "{socket}");
}

#[test]
fn print_schema_prints_the_document_that_the_server_serves() {
    let model = tiny_model();
    let mut server = Headrace::start(&[
        "router",
        "--fake-shard",
        // The document of all routes that there may be.
        "--kserve",
        "--hostname",
        "127.0.0.1",
        "--port",
        "0",
        "--model-id",
        text(model.path()),
    ]);
    let (_, served) = get(&server.address(), "/api-doc/openapi.json");
    let document = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    for words in [&["print-schema"][..], &["text-generation-router", "print-schema"]] {
        assert!(document(&Headrace::start(words).output()) == document(&served), "{words:?}");
    }
}
