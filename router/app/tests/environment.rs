//! Values from the environment: what is empty is not set, and what is wrong is named by its variable.

mod harness;

use harness::{Headrace, text, tiny_model};

/// How a start with these variables ends; they must be such that nothing is started.
fn refused(environment: &[(&str, &str)]) -> String {
    let ended = Headrace::start_with(&["serve", "--hostname", "127.0.0.1"], environment).wait();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    ended.error().to_owned()
}

#[test]
fn a_value_that_cannot_be_read_is_one_line_with_the_variables_name() {
    let error = refused(&[("MAX_BATCH_SIZE", "abc")]);
    assert!(error.contains("'abc'") && error.contains("set by the variable MAX_BATCH_SIZE"), "{error}");
    let error = refused(&[("DTYPE", "int3")]);
    assert!(error.contains("bfloat16") && error.contains("set by the variable DTYPE"), "{error}");
}

#[test]
fn a_value_that_cannot_work_is_one_line_with_the_variables_name() {
    let error = refused(&[("MAX_BATCH_PREFILL_TOKENS", "9"), ("MAX_BATCH_TOTAL_TOKENS", "8")]);
    for variable in ["MAX_BATCH_PREFILL_TOKENS", "MAX_BATCH_TOTAL_TOKENS"] {
        assert!(error.contains(&format!("set by the variable {variable}")), "{error}");
    }
}

#[test]
fn what_was_typed_is_not_blamed_on_a_variable() {
    let flags = ["serve", "--max-batch-size", "abc"];
    let ended = Headrace::start_with(&flags, &[("MAX_BATCH_SIZE", "8")]).wait();
    assert!(!ended.stderr.contains("variable"), "{}", ended.stderr);
}

#[test]
fn empty_variables_count_as_not_set() {
    let model = tiny_model();
    let flags = ["router", "--fake-shard", "--hostname", "127.0.0.1", "--port", "0", "--model-id", text(model.path())];
    let empty = ["MAX_BATCH_SIZE", "QUANTIZE", "API_KEY", "JSON_OUTPUT", "LOG_LEVEL", "MAX_TOTAL_TOKENS"];
    let mut router = Headrace::start_with(&flags, &empty.map(|name| (name, "")));
    router.address();
}
