//! `headrace simulate` on traces: replayed, measured, and asked what if.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headrace_scheduler::{Config, Micros};
use headrace_simulator::{CostModel, Preset, PresetKnobs, Workload, record};
use serde_json::Value;
use tempfile::TempDir;

fn simulate(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headrace"));
    command.arg("simulate").args(words.split_whitespace()).output().expect("the binary runs")
}

fn text(words: &str) -> String {
    let output = simulate(words);
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(words: &str) -> Value {
    serde_json::from_str(&text(&format!("{words} --json"))).expect("one JSON value")
}

/// What a server would have recorded.
struct Trace {
    directory: TempDir,
    segments: Vec<Vec<u8>>,
}

impl Trace {
    /// The seed's mixture, some of whose clients leave, in segments of `steps`.
    fn new(cost: &CostModel, steps: u64) -> Self {
        let workload = Preset::Seed.workload(PresetKnobs { requests: 200, rate: 3.0, ..PresetKnobs::default() });
        let mut arrivals = workload.arrivals().to_vec();
        arrivals.iter_mut().step_by(9).for_each(|arrival| arrival.leaves = Some(Micros(1_500_000)));
        let config = Config { max_batch_size: 16, ..Config::default() };
        let (_, segments) = record(&Workload::new(arrivals), &config, cost, steps).expect("never stuck");
        let trace = Self { directory: tempfile::tempdir().expect("a directory"), segments };
        trace.write();
        trace
    }

    fn write(&self) {
        for (index, segment) in self.segments.iter().enumerate() {
            std::fs::write(self.segment(index + 1), segment).expect("written");
        }
    }

    fn segment(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("serve.trace.{number:06}"))
    }

    fn name(&self) -> String {
        self.directory.path().join("serve.trace").display().to_string()
    }
}

#[test]
fn a_trace_replays_byte_for_byte_whole_and_by_segment() {
    let trace = Trace::new(&CostModel::CPU_SMOLLM2, 400);
    assert!(trace.segments.len() > 3);
    let all = json(&format!("--replay {}", trace.name()));
    assert_eq!((&all["same"], all["segments"].as_array().map(Vec::len)), (&true.into(), Some(trace.segments.len())));
    let one = text(&format!("--replay {}", trace.segment(2).display()));
    assert!(one.contains("400 plans of 1 segments: byte for byte"), "{one}");
}

#[test]
fn a_changed_decision_ends_the_replay_with_its_record() {
    let mut trace = Trace::new(&CostModel::CPU_SMOLLM2, 400);
    let place = change_a_plan(&mut trace.segments[1]);
    trace.write();
    let output = simulate(&format!("--replay {} --json", trace.name()));
    assert_eq!(output.status.code(), Some(1), "byte {place}: {output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!((&said["same"], &said["segments"][0]["same"]), (&false.into(), &true.into()));
    assert_ne!(said["difference"]["recorded"], said["difference"]["now"], "{said}");
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert!(sentence.contains("serve.trace.000002") && sentence.contains("recorded was"), "{sentence}");
}

/// Flips a bit in the first plan: in the last byte of its record, which belongs to the hash of its block tables. Returns
/// its place.
fn change_a_plan(segment: &mut [u8]) -> usize {
    let length = |at: usize| u32::from_le_bytes(segment[at..at + 4].try_into().expect("four bytes")) as usize;
    /// As postcard numbers the kinds of records.
    const PLANNED: u8 = 4;
    let mut at = 8 + 4 + length(8);
    while segment[at + 4] != PLANNED || length(at) < 20 {
        at += 4 + length(at);
    }
    let last = at + 3 + length(at);
    segment[last] ^= 1;
    last
}

#[test]
fn a_fit_is_the_cost_model_of_the_run() {
    let cost = CostModel { router: Micros(900), gap: Micros(80), ..CostModel::CPU_SMOLLM2 };
    let trace = Trace::new(&cost, u64::MAX);
    let found = CostModel::from_toml(&text(&format!("--fit {}", trace.name()))).expect("a cost model");
    let close = |found: f64, right: f64| (found - right).abs() <= right * 0.02;
    assert!(close(found.step.base, cost.step.base) && close(found.step.per_token, cost.step.per_token), "{found:?}");
    assert!(
        close(found.step.per_row, cost.step.per_row) && close(found.step.per_pair, cost.step.per_pair),
        "{found:?}"
    );
    assert!(close(found.step.per_context, cost.step.per_context), "{found:?}");
    assert_eq!((found.router, found.gap), (cost.router, cost.gap));
    let file = trace.directory.path().join("cost.toml");
    let fit = json(&format!("--fit {} --fit-output {}", trace.name(), file.display()));
    assert!(fit["p99_error_percent"].as_f64() < Some(1.0) && fit["steps"].as_u64() > Some(100), "{fit}");
    text(&format!("--requests 10 --cost-model {}", file.display()));
}

#[test]
fn what_is_no_trace_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("text.000001");
    std::fs::write(&file, "no trace").expect("written");
    let refusal = |words: &str, path: &Path| {
        let output = simulate(&format!("{words} {}", path.display()));
        assert!(!output.status.success(), "{words}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for words in ["--replay", "--fit", "--what-if none --replay"] {
        assert!(refusal(words, &file).contains("this is no trace"), "{words}");
        assert!(refusal(words, Path::new("/no/such/trace")).contains("no trace of that name"), "{words}");
    }
}

#[test]
fn what_if_nothing_changed_predicts_the_recorded_run() {
    let cost = CostModel { router: Micros(900), gap: Micros(80), ..CostModel::CPU_SMOLLM2 };
    let trace = Trace::new(&cost, u64::MAX);
    let file = trace.directory.path().join("cost.toml");
    std::fs::write(&file, cost.to_toml()).expect("written");
    for (words, percent) in [(format!("--cost-model {}", file.display()), 1.0), (String::new(), 3.0)] {
        let said = json(&format!("--replay {} --what-if none {words}", trace.name()));
        for latency in ["ttft_p50", "ttft_p99", "itl_p50", "itl_p99"] {
            let off = said["prediction"]["difference_percent"][latency].as_f64().expect("a difference");
            assert!(off.abs() <= percent, "{latency}: {off} % off, {words}");
        }
    }
}

#[test]
fn what_if_turns_the_knobs_it_names() {
    let trace = Trace::new(&CostModel::CPU_SMOLLM2, u64::MAX);
    let ask = |words: &str| json(&format!("--replay {} {words}", trace.name()));
    let [same, eight, four] = ["none", "max-batch-size=8", "max-batch-size=4"].map(|change| {
        let said = ask(&format!("--what-if {change}"));
        said["prediction"]["predicted"]["e2e_ms"]["mean"].as_f64().expect("a time")
    });
    assert!(same < eight && eight < four, "{same} {eight} {four}");
    let table = text(&format!("--replay {} --what-if scheduling-policy=fair --what-if max-batch-size=8", trace.name()));
    assert!(table.contains("knobs: scheduling-policy=fair, max-batch-size=8"), "{table}");
    assert!(table.contains("ttft p99") && table.contains("error of a step's time"), "{table}");
    let output = simulate(&format!("--replay {} --what-if colour=red", trace.name()));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("colour"), "{output:?}");
}
