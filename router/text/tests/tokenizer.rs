//! Loading a tokenizer, and what it says of its tokens.

mod tokenizers;

use headrace_text::{Tokenizer, TokenizerError};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizers::{byte_fallback, byte_level, byte_level_json, metaspace, word_piece};

#[test]
fn a_directory_without_a_tokenizer_is_named_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = Tokenizer::from_dir(dir.path()).err().expect("no tokenizer there");
    let path = dir.path().join("tokenizer.json");
    assert_eq!(error, TokenizerError::Missing { path: path.clone() });
    assert!(error.to_string().contains(&path.display().to_string()));
    assert!(!error.to_string().contains('\n'));
}

#[test]
fn a_malformed_file_is_named_in_one_line_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokenizer.json");
    for contents in ["", "{", "{\"model\":\n 7}", "[]", "\u{fffd}"] {
        std::fs::write(&path, contents).expect("written");
        let message = Tokenizer::from_dir(dir.path()).err().expect("malformed").to_string();
        assert!(message.contains(&path.display().to_string()), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn special_tokens_come_around_a_text_only_when_asked() {
    let tokenizer = byte_level();
    let bare = tokenizer.encode("hell", false).expect("encodes");
    let framed = tokenizer.encode("hell", true).expect("encodes");
    assert_eq!(bare.ids, [258]);
    assert_eq!(framed.ids, [260, 258]);
}

#[test]
fn the_files_own_truncation_is_ignored() {
    let encoding = byte_level().encode("many more than four tokens", false).expect("encodes");
    assert!(encoding.ids.len() > 4);
}

#[test]
fn it_is_known_by_the_bytes_that_it_was_read_from() {
    let one = br#"{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}"#;
    assert_eq!(
        Tokenizer::from_bytes(one).expect("valid").sha256(),
        "2fae216f8e37173d46504a915bcc3c793a9036ed6dc08b4c7fee7a3babec470b"
    );
}

#[test]
fn an_empty_text_has_no_tokens() {
    let tokenizer = byte_level();
    assert!(tokenizer.encode("", false).expect("encodes").ids.is_empty());
    assert_eq!(tokenizer.decode(&[], false).expect("decodes"), "");
}

#[test]
fn one_token_reads_as_people_should_see_it() {
    let tokenizer = byte_level();
    assert_eq!(tokenizer.token_text(258), "hell");
    assert_eq!(tokenizer.token_text(259), "<|end|>");
    let halves = tokenizer.encode("é", false).expect("encodes").ids;
    assert_eq!(tokenizer.token_text(halves[0]), "\u{fffd}");
    assert_eq!(tokenizer.token_text(1_000_000), "");
}

#[test]
fn the_vocabulary_can_be_asked() {
    let tokenizer = byte_level();
    assert_eq!(tokenizer.vocab_size(), 261);
    assert_eq!(tokenizer.token_id("<|end|>"), Some(259));
    assert_eq!(tokenizer.token_id("nowhere"), None);
    assert!(tokenizer.is_special(259) && !tokenizer.is_special(258) && !tokenizer.is_special(u32::MAX));
}

proptest! {
    /// Every token names whole characters of the text, in order, and all together cover it.
    #[test]
    fn offsets_are_bytes_of_the_text(text in any::<String>()) {
        let encoding = byte_level().encode(&text, false).expect("encodes");
        prop_assert_eq!(encoding.ids.len(), encoding.offsets.len());
        let mut covered = 0;
        for (start, end) in encoding.offsets {
            prop_assert!(start <= covered && text.get(start..end).is_some(), "{}..{} of {:?}", start, end, text);
            covered = covered.max(end);
        }
        prop_assert_eq!(covered, text.len());
    }

    #[test]
    fn a_tokens_text_is_the_decoder_of_it_alone(id in 0u32..300) {
        for tokenizer in [byte_level(), byte_fallback(), word_piece()] {
            prop_assert_eq!(tokenizer.token_text(id), tokenizer.decode(&[id], false).expect("decodes"));
        }
    }
}

#[test]
fn a_tokenizer_that_may_lose_something_promises_no_tokens() {
    assert_eq!(word_piece().least_tokens(1_000_000), 0);
    assert_eq!(metaspace().least_tokens(1_000_000), 0);
}

#[test]
fn one_that_loses_nothing_promises_as_many_as_its_longest_tokens_fill() {
    // `<|start|>`, 9 bytes.
    assert_eq!(byte_level().least_tokens(9_001), 1_001);
    assert_eq!(byte_level().least_tokens(0), 0);
}

#[test]
fn a_normalizer_that_folds_or_a_byte_that_is_missing_ends_the_promise() {
    let with = |path: &str, value: Value| {
        let mut json = byte_level_json();
        *json.pointer_mut(path).expect("it has one") = value;
        Tokenizer::from_bytes(json.to_string().as_bytes()).expect("valid").least_tokens(1000)
    };
    assert!(with("/normalizer", Value::Null) > 0);
    assert_eq!(with("/normalizer", json!({"type": "NFC"})), 0);
    assert_eq!(with("/normalizer", json!({"type": "Strip", "strip_left": true, "strip_right": true})), 0);
    assert_eq!(with("/pre_tokenizer", json!({"type": "WhitespaceSplit"})), 0);
    assert_eq!(with("/added_tokens/0/lstrip", json!(true)), 0);
    let removed = json!({"type": "Split", "pattern": {"String": "x"}, "behavior": "Removed", "invert": false});
    assert_eq!(with("/pre_tokenizer", json!({"type": "Sequence", "pretokenizers": [removed]})), 0);
}

proptest! {
    /// What is promised is kept, on texts that a token can stand for much of.
    #[test]
    fn no_text_has_fewer_tokens_than_its_length_promises(text in "([a-eho ]|hell|▁|é|<[|]end[|]>|\\PC){0,40}") {
        for tokenizer in [byte_level(), byte_fallback()] {
            let tokens = tokenizer.encode(&text, false).expect("encodes").ids.len();
            prop_assert!(tokens >= tokenizer.least_tokens(text.len()), "{tokens} of {} bytes", text.len());
        }
    }
}
