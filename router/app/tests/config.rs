//! `headrace config`: every value, where it comes from, and nothing started.

mod harness;

use harness::{Headrace, text, tiny_model};

/// Value and origin of each flag that `headrace config` shows.
struct Shown(String);

impl Shown {
    fn of(words: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut process = Headrace::start_with(&[&["config"], words].concat(), environment);
        let output = process.output();
        let ended = process.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        Self(output)
    }

    #[track_caller]
    fn assert(&self, flag: &str, value: &str, origin: &str) {
        let line = self.0.lines().find(|line| line.split_whitespace().next() == Some(flag));
        let line = line.unwrap_or_else(|| panic!("{flag} is not in\n{}", self.0));
        let rest = line.trim_start().strip_prefix(flag).unwrap_or_default().trim();
        let (shown, from) = rest.split_once("  ").unwrap_or((rest.split(' ').next().unwrap_or_default(), rest));
        assert!(shown == value && from.trim().ends_with(origin), "{line}");
    }
}

#[test]
fn each_value_comes_with_its_origin() {
    let words = ["--max_num_seqs", "8", "--max-num-batched-tokens", "2048", "--port", "1"];
    let shown = Shown::of(&words, &[("MAX_BEST_OF", "3"), ("SM_NUM_GPUS", "1")]);
    shown.assert("max-batch-size", "8", "--max-num-seqs");
    shown.assert("port", "1", "--port");
    shown.assert("max-best-of", "3", "variable MAX_BEST_OF");
    shown.assert("num-shard", "1", "variable SM_NUM_GPUS");
    shown.assert("payload-limit", "2000000", "default");
    shown.assert("max-batch-prefill-tokens", "2040", "less a token of each of --max-batch-size rows");
    shown.assert("max-input-tokens", "-", "default: one less than --max-total-tokens");
}

#[test]
fn the_router_is_shown_by_its_own_name() {
    let model = tiny_model();
    let shown = Shown::of(&["router", "--fake-shard", "--model-id", text(model.path())], &[]);
    shown.assert("fake-shard", "true", "--fake-shard");
}

#[test]
fn a_switch_that_another_servers_variable_turns_is_shown_turned() {
    let shown = Shown::of(&["serve"], &[("PREFIX_CACHING", "0")]);
    shown.assert("no-prefix-cache", "true", "variable PREFIX_CACHING");
}

#[test]
fn what_was_typed_wins_over_the_opposite_variable() {
    let shown = Shown::of(&["serve", "--no-prefix-cache"], &[("PREFIX_CACHING", "1")]);
    shown.assert("no-prefix-cache", "true", "--no-prefix-cache");
    let shown = Shown::of(&["serve", "--enable-prefix-caching"], &[("NO_PREFIX_CACHE", "1")]);
    shown.assert("no-prefix-cache", "false", "--enable-prefix-caching");
}

#[test]
fn a_containers_hostname_variable_means_every_interface_and_is_shown_so() {
    let named = Shown::of(&["serve"], &[("HOSTNAME", "abc1234")]);
    named.assert("hostname", "0.0.0.0", "derived: HOSTNAME is abc1234, which is no IP address");
    let address = Shown::of(&["serve"], &[("HOSTNAME", "127.0.0.2")]);
    address.assert("hostname", "127.0.0.2", "variable HOSTNAME");
}

#[test]
fn a_value_that_came_by_another_flag_is_shown_under_both() {
    let shown = Shown::of(&["serve"], &[("MAX_INPUT_LENGTH", "100")]);
    shown.assert("max-input-tokens", "100", "variable MAX_INPUT_LENGTH");
    let shown = Shown::of(&["serve", "--allowed-origins", r#"["http://a","http://b"]"#], &[]);
    shown.assert("cors-allow-origin", "http://a,http://b", "--allowed-origins");
}

#[test]
fn counts_are_shown_as_they_hold() {
    let shown = Shown::of(&["serve", "--max-model-len", "8k", "--max-num-batched-tokens", "2K"], &[]);
    shown.assert("max-total-tokens", "8000", "--max-model-len");
    shown.assert("max-num-batched-tokens", "2048", "--max-num-batched-tokens");
}

#[test]
fn an_error_about_a_value_names_the_flag_that_gave_it() {
    let ended = Headrace::start(&["serve", "--max-input-length", "9", "--max-total-tokens", "8"]).wait();
    assert!(ended.error().ends_with("(--max-input-tokens is set by --max-input-length)"), "{}", ended.stderr);
}

#[test]
fn a_secret_is_not_shown() {
    let shown = Shown::of(&["serve", "--hf-token", "hf_secret"], &[]);
    assert!(!shown.0.contains("hf_secret"), "{}", shown.0);
    shown.assert("hf-token", "(not shown)", "--hf-token");
}

#[test]
fn a_contradiction_is_an_error_here_too() {
    let ended = Headrace::start(&["config", "--max-input-tokens", "9", "--max-total-tokens", "8"]).wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error().contains("--max-input-tokens 9 must be less than --max-total-tokens 8"), "{}", ended.stderr);
}

#[test]
fn an_error_says_under_which_name_a_flag_was_given() {
    let ended = Headrace::start(&["serve", "--max-input-tokens", "9", "--max-model-len", "8"]).wait();
    assert!(ended.error().ends_with("(--max-total-tokens is set by --max-model-len)"), "{}", ended.stderr);
}
