//! `headrace bench` as people use it: it starts a server, measures it and ends it.

mod harness;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use harness::{Headrace, text, tiny_model, wait_until};
use serde_json::{Value, json};

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headrace")).arg("bench").args(words).output().expect("the binary runs")
}

fn report(words: &[&str]) -> Value {
    let output = bench(words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

fn refusal(words: &[&str]) -> String {
    let output = bench(words);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The end of a command line that starts a router whose tokens are made up.
fn fake_server(model: &Path) -> [&str; 10] {
    let program = env!("CARGO_BIN_EXE_headrace");
    ["--", program, "router", "--fake-shard", "--hostname", "127.0.0.1", "--port", "{port}", "--model-id", text(model)]
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
    let report = report(&words.concat());
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
    let report = report(&[&load[..], &["--url", &url, "--server-pid", &pid]].concat());
    assert_eq!((&report["whole"], &report["output_tokens"]), (&40.into(), &120.into()), "{report}");
}

#[test]
fn requests_that_a_server_refuses_are_counted_by_its_sentence() {
    let model = tiny_model();
    let words = ["--requests", "3", "--warmup", "0", "--output-tokens", "5000"];
    let words = [&words[..], &fake_server(model.path())].concat();
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

#[test]
fn a_mixture_is_asked_for_in_exact_tokens_by_both_apis_and_judged_by_its_limits() {
    let model = tiny_model();
    for api in ["tgi", "openai"] {
        let words = ["--json", "--api", api, "--workload", "seed", "--tokenizer", text(model.path())];
        let load = ["--concurrency", "48", "--requests", "48", "--slo-ttft", "60000", "--slo-itl", "60000"];
        let report = report(&[&words[..], &load, &fake_server(model.path())].concat());
        assert_eq!(
            (&report["whole"], &report["short"], &report["long"]),
            (&48.into(), &0.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["output_tokens"], 24 * 220);
        // As the server counts them: half of the prompts have 50, half 500.
        assert_eq!(report["prompt_tokens"], 24 * 550);
        assert_eq!((&report["goodput"]["share"], &report["workload"]), (&1.0.into(), &"seed".into()));
        assert!(report["client_cpu"]["cores"].as_f64() > Some(0.0), "{report}");
    }
}

#[test]
fn a_sweep_has_a_report_a_load_in_files_and_a_line_each_on_the_terminal() {
    let model = tiny_model();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (json, html) = (folder.path().join("r.json"), folder.path().join("r.html"));
    let words = ["--sweep", "concurrency=4,1", "--requests", "8", "--output-tokens", "5", "--slo-ttft", "60000"];
    let files = ["--json", text(&json), "--html", text(&html), "--api-key", "sesame"];
    let output = bench(&[&words[..], &files, &fake_server(model.path())].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(table.contains("4 streams: the most at which 90 % are good"), "{table}");
    let sweep: Value = serde_json::from_slice(&fs::read(json).expect("a file")).expect("JSON");
    let loads: Vec<_> = sweep["points"].as_array().expect("points").iter().map(|point| &point["load"]).collect();
    assert_eq!(
        (&sweep["of"], &sweep["knee"], loads),
        (&"concurrency".into(), &4.0.into(), vec![&json!(1.0), &json!(4.0)])
    );
    assert_eq!(sweep["points"][1]["whole"], 8);
    let page = fs::read_to_string(html).expect("a file");
    assert!(page.contains("--sweep concurrency=4,1") && page.ends_with("</html>\n"));
    assert!(!page.contains("sesame") && !sweep.to_string().contains("sesame"));
}

#[test]
fn requests_of_a_file_are_asked_once_each_at_their_times() {
    let model = tiny_model();
    let path = model.path().join("requests.jsonl");
    let lines = "{\"prompt\": \"once upon\", \"output_tokens\": 3, \"at\": 0}\n{\"prompt_tokens\": 9, \"output_tokens\": 4, \"at\": 0.02}\n";
    fs::write(&path, lines).expect("a file");
    let workload = format!("file:{}", text(&path));
    let report = report(&[&["--json", "--workload", &workload][..], &fake_server(model.path())].concat());
    assert_eq!((&report["whole"], &report["output_tokens"], &report["streams"]), (&2.into(), &7.into(), &Value::Null));
    fs::write(&path, format!("{lines}{{\"prompt\": \"\"}}\n")).expect("a file");
    let said = bench(&["--workload", &workload]);
    let stderr = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(2));
    assert!(stderr.contains("requests.jsonl, line 3: missing field `output_tokens`"), "{stderr}");
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let refused = [
        (&["--arrivals", "even"][..], "--arrivals is for an open loop"),
        (&["--streams", "3", "--arrivals", "bursty"], "--arrivals is for an open loop"),
        (&["--sweep", "concurrency=1", "--arrivals", "even"], "--arrivals is for an open loop"),
        (&["--rate", "3", "--burstiness", "0.5"], "give both or neither"),
        (&["--workload", "decode", "--prompt-tokens", "3"], "leave out --prompt-tokens, or --workload"),
        (&["--workload", "decode", "--prompt", "a"], "leave out --prompt, or --workload"),
        (&["--sweep", "rate=1,2", "--rate", "3"], "--sweep and --rate contradict each other"),
        (&["--tokenizer", "/nowhere"], "name the tokenizer.json"),
    ];
    for (words, sentence) in refused {
        let stderr = refusal(words);
        assert!(stderr.contains(sentence), "{words:?}: {stderr}");
    }
}
