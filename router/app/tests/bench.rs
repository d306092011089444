//! `headrace bench` as people use it: it starts a server, measures it and ends it.

mod harness;

use std::fs;
use std::process::{Command, Output};

use harness::{Headrace, text, tiny_model, wait_until};
use serde_json::Value;

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headrace")).arg("bench").args(words).output().expect("the binary runs")
}

fn json(words: &[&str]) -> Value {
    let output = bench(words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

fn refusal(words: &[&str]) -> String {
    let output = bench(words);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_server_that_is_started_for_it_is_asked_for_every_token_and_ended() {
    let model = tiny_model();
    let pid = model.path().join("pid");
    let script = format!(r#"echo $$ > {}; exec "$0" "$@""#, text(&pid));
    let server = ["sh", "-c", &script, env!("CARGO_BIN_EXE_headrace"), "router", "--fake-shard"];
    let server = [&server[..], &["--hostname", "127.0.0.1", "--port", "{port}", "--model-id", text(model.path())]];
    let words =
        [&["--json", "--streams", "4", "--requests", "12", "--output-tokens", "20", "--"], &server.concat()[..]];
    let report = json(&words.concat());
    assert_eq!((&report["whole"], &report["failed"], &report["short"]), (&12.into(), &0.into(), &0.into()), "{report}");
    assert_eq!(report["output_tokens"], 240);
    assert!(report["ttft_ms"]["p50"].as_f64() > Some(0.0) && report["server_cpu"]["user_s"].is_number(), "{report}");
    let pid = fs::read_to_string(pid).expect("it ran");
    wait_until("the server to be gone", || !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
}

#[test]
fn an_open_loop_sends_its_requests_at_a_server_that_runs() {
    let model = tiny_model();
    let words = ["router", "--fake-shard", "--hostname", "127.0.0.1", "--port", "0", "--model-id", text(model.path())];
    let mut server = Headrace::start(&words);
    let (url, pid) = (format!("http://{}", server.address()), server.pid().to_string());
    let load = ["--json", "--rate", "500", "--requests", "40", "--output-tokens", "3", "--prompt", "once upon"];
    let report = json(&[&load[..], &["--url", &url, "--server-pid", &pid]].concat());
    assert_eq!((&report["whole"], &report["output_tokens"]), (&40.into(), &120.into()), "{report}");
}

#[test]
fn requests_that_a_server_refuses_are_counted_by_its_sentence() {
    let model = tiny_model();
    let server = ["--", env!("CARGO_BIN_EXE_headrace"), "router", "--fake-shard", "--hostname", "127.0.0.1"];
    let server = [&server[..], &["--port", "{port}", "--model-id", text(model.path())]].concat();
    let words = [&["--requests", "3", "--warmup", "0", "--output-tokens", "5000"], &server[..]].concat();
    let stderr = refusal(&words);
    assert!(stderr.contains("no request was answered: ") && stderr.contains("max_new_tokens"), "{stderr}");
}

#[test]
fn a_server_that_does_not_start_says_why() {
    let stderr = refusal(&["--", "sh", "-c", "echo out of luck on {port}; exit 3"]);
    assert!(stderr.contains("exit status: 3") && stderr.contains("out of luck on "), "{stderr}");
}

#[test]
fn a_command_that_names_no_port_is_refused() {
    assert!(refusal(&["--", "true"]).contains("{port}"));
}
