//! `headrace simulate` as people and scripts use it: words in, figures on standard output.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Eight requests of 5, 50, 8, 12, 40, 3, 30 and 7 tokens of answer, one prompt token each, all at once.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads/golden.jsonl");

fn simulate(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headrace"));
    command.arg("simulate").args(words.split_whitespace()).output().expect("the binary runs")
}

fn json(words: &str) -> Value {
    let output = simulate(&format!("{words} --json"));
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

/// The sentence of a run that fails because of its words.
fn refusal(words: &str) -> String {
    let output = simulate(words);
    assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn golden(words: &str) -> (u64, u64) {
    let report = json(&format!("--workload {GOLDEN} --max-batch-size 4 --cost-model unit {words}"));
    let steps = report["steps"].as_u64().expect("a count");
    assert_eq!(report["makespan_ms"], steps as f64, "every step is a millisecond");
    (steps, (report["busy_row_fraction"].as_f64().expect("a share") * 100.0).round() as u64)
}

#[test]
fn eight_requests_on_four_rows_take_90_steps_in_static_groups() {
    assert_eq!(golden("--scheduling-policy static --group-size 4"), (90, 43));
}

#[test]
fn eight_requests_on_four_rows_take_50_steps_with_continuous_batching() {
    assert_eq!(golden("--scheduling-policy fcfs"), (50, 78));
}

#[test]
fn the_json_has_the_promised_fields() {
    let report = json("--requests 20");
    let names = "steps busy_row_fraction makespan_ms output_tokens_per_s requests_per_s ttft_ms itl_ms e2e_ms queue_ms \
                 preemptions recomputed_tokens prefix_hit_tokens prefix_hit_rate peak_blocks rejected retry_after_within_2x deadline_missed \
                 tenants priorities";
    let fields = report.as_object().expect("an object");
    assert!(names.split_whitespace().all(|name| fields.contains_key(name)), "{fields:?}");
    assert_eq!(fields.len(), names.split_whitespace().count());
    for latencies in [&report, &report["tenants"]["default"], &report["priorities"]["0"]] {
        for latency in ["ttft_ms", "itl_ms", "e2e_ms", "queue_ms"] {
            for figure in ["mean", "p50", "p90", "p99", "max"] {
                assert!(latencies[latency][figure].is_number(), "{latency} {figure}");
            }
        }
    }
}

#[test]
fn the_same_words_give_the_same_bytes_and_another_seed_gives_others() {
    for preset in ["seed", "sharegpt", "bursty", "prefix", "adversary"] {
        let words = |seed| format!("--preset {preset} --cost-model a100-7b --requests 60 --seed {seed} --json");
        let bytes = |seed| simulate(&words(seed)).stdout;
        assert_eq!(bytes(3), bytes(3), "{preset}");
        assert_ne!(bytes(3), bytes(4), "{preset}");
    }
}

#[test]
fn policies_are_compared_on_the_same_requests() {
    let both = json(&format!("--workload {GOLDEN} --max-batch-size 4 --group-size 4 --compare static,fcfs"));
    assert_eq!((&both["static"]["steps"], &both["fcfs"]["steps"]), (&90.into(), &50.into()));
}

#[test]
fn a_sweep_finds_the_highest_rate_within_the_limits() {
    let sweep = json("--cost-model a100-7b --max-batch-size 8 --sweep rate=1..9:4 --ttft-limit-ms 250");
    let ttft = |index: usize| sweep["points"][index]["report"]["ttft_ms"]["p99"].as_f64().expect("a time");
    assert!(ttft(0) <= 250.0 && ttft(2) > 250.0, "{} … {}", ttft(0), ttft(2));
    let highest = sweep["highest_within_limits"].as_f64().expect("a rate");
    assert!(highest < 9.0, "{highest}");
}

#[test]
fn the_timeline_is_a_picture_of_the_rows() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rows.svg");
    json(&format!("--workload {GOLDEN} --max-batch-size 4 --timeline {}", file.display()));
    let picture = std::fs::read_to_string(&file).expect("written");
    assert!(picture.starts_with("<svg") && picture.contains("50 steps, 78 % of rows busy"), "{picture}");
}

#[test]
fn knobs_reach_the_scheduler() {
    let base = "--cost-model a100-7b --rate inf --requests 40";
    let steps = |words: &str| json(&format!("{base} {words}"))["steps"].as_u64().expect("a count");
    assert!(steps("--max-batch-size 4") > steps("--max-batch-size 8"));
    assert!(steps("--max-batch-prefill-tokens 64") > steps("--max-batch-prefill-tokens 4096"));
    assert_eq!(json(&format!("{base} --max-concurrent-requests 10"))["rejected"], 30);
    assert!(json(&format!("{base} --max-queue-tokens 2000"))["rejected"].as_u64() > Some(0));
    assert!(
        json(&format!("{base} --max-batch-total-tokens 1000 --admission watermark"))["preemptions"].as_u64() > Some(0)
    );
    let [with, without] = ["", "--no-prefix-cache"].map(|words| json(&format!("{base} --preset prefix {words}")));
    assert!(with["prefix_hit_rate"].as_f64() > Some(0.3) && without["prefix_hit_tokens"] == 0);
}

#[test]
fn a_workload_that_cannot_be_read_is_refused_by_line_and_field() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bad.jsonl");
    std::fs::write(&file, "{\"at_ms\": 0, \"prompt_tokens\": 0, \"output_tokens\": 1}\n").expect("written");
    let words = |path: &Path| format!("--workload {}", path.display());
    let sentence = refusal(&words(&file));
    assert!(sentence.contains("line 1: prompt_tokens: must be at least 1"), "{sentence}");
    assert!(refusal(&words(Path::new("/no/such/file"))).contains("no such file"));
}

#[test]
fn words_that_contradict_each_other_are_refused() {
    refusal(&format!("--workload {GOLDEN} --preset seed"));
    refusal(&format!("--workload {GOLDEN} --sweep rate=1..2"));
    refusal("--sweep 1..2");
    refusal("--cost-model no-such-machine");
    refusal("--rate 0");
    refusal("--max-batch-size 0");
    refusal("--ttft-limit-ms 5");
}
