//! Small tokenizers of each family, written by hand.
#![allow(dead_code, reason = "each test file uses some of them")]

use std::sync::Arc;

use headrace_text::Tokenizer;
use serde_json::{Value, json};

fn load(json: Value) -> Arc<Tokenizer> {
    let json = serde_json::to_vec(&json).expect("JSON");
    Arc::new(Tokenizer::from_bytes(&json).expect("a valid tokenizer"))
}

/// Ids of `vocabulary`'s entries are their places in it; the added tokens come after.
fn vocabulary(entries: impl IntoIterator<Item = String>) -> Value {
    let numbered = entries.into_iter().enumerate().map(|(id, entry)| (entry, json!(id)));
    Value::Object(numbered.collect())
}

fn special(id: usize, content: &str) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": true})
}

/// Byte-level BPE as GPT-2's: all 256 bytes, a few merges, `<|end|>` (259) and `<|start|>` (260).
pub fn byte_level() -> Arc<Tokenizer> {
    load(byte_level_json())
}

pub fn byte_level_json() -> Value {
    let merged = ["he", "ll", "hell"].map(String::from);
    json!({
        "version": "1.0",
        "added_tokens": [special(259, "<|end|>"), special(260, "<|start|>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<|start|>": {"id": "<|start|>", "ids": [260], "tokens": ["<|start|>"]}},
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": vocabulary(bytes().chain(merged)),
            "merges": ["h e", "l l", "he ll"],
        },
    })
}

/// First id of the 256 byte tokens of [`byte_fallback`].
pub const FIRST_BYTE: u32 = 3;

/// SentencePiece BPE as Llama 2's: `▁` for spaces, `<0x..>` for unknown bytes, one leading space left out.
pub fn byte_fallback() -> Arc<Tokenizer> {
    load(byte_fallback_json(json!([
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ])))
}

/// The same, with a decoder that means the same but has no table: a second strip, which strips nothing.
pub fn byte_fallback_through_the_window() -> Arc<Tokenizer> {
    load(byte_fallback_json(json!([
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": "\u{0}", "start": 0, "stop": 0},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ])))
}

fn byte_fallback_json(decoders: Value) -> Value {
    let specials = ["<unk>", "<s>", "</s>"].map(String::from);
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let characters = "▁abcdehlo ,.".chars().filter(|&c| c != ' ').map(String::from);
    let merged = ["▁h", "▁he", "ll", "llo"].map(String::from);
    let entries: Vec<String> = specials.into_iter().chain(bytes).chain(characters).chain(merged).collect();
    json!({
        "version": "1.0",
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true,
            "vocab": vocabulary(entries),
            "merges": ["▁ h", "▁h e", "l l", "ll o"],
        },
    })
}

/// Whole words with the Metaspace decoder: the first token loses its `▁`.
pub fn metaspace() -> Arc<Tokenizer> {
    let words = ["<unk>", "▁Hello", "▁world", "▁", "!", "▁▁a", "é"].map(String::from);
    load(json!({
        "version": "1.0",
        "added_tokens": [special(0, "<unk>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "post_processor": null,
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "WordLevel", "vocab": vocabulary(words), "unk_token": "<unk>"},
    }))
}

/// The same words; only the first of a text gets its `▁`, and special tokens are taken out of it.
pub fn metaspace_first() -> Arc<Tokenizer> {
    let words = ["<unk>", "▁Hello", "▁world", "▁", "!", "Hello", "a", "<", ">", "/", "s"].map(String::from);
    let first = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true});
    load(json!({
        "version": "1.0",
        "added_tokens": [special(0, "<unk>"), special(11, "<s>"), special(12, "</s>")],
        "normalizer": null,
        "pre_tokenizer": first,
        "post_processor": null,
        "decoder": first,
        "model": {"type": "WordLevel", "vocab": vocabulary(words), "unk_token": "<unk>"},
    }))
}

/// Byte-level BPE with added tokens of every kind: `<|end|>` keeps to itself, `<l>` and `<r>` take white space with them,
/// `<w>` must be a word, `<n>` is looked for in normalized text, `<think>` is not special.
pub fn with_all_kinds_of_added_tokens() -> Arc<Tokenizer> {
    let added = |id: usize, content: &str, flags: &[&str]| {
        let mut token = special(id, content);
        for flag in flags {
            token[flag] = json!(true);
        }
        token
    };
    let mut think = added(264, "<think>", &[]);
    think["special"] = json!(false);
    load(json!({
        "version": "1.0",
        "added_tokens": [
            added(256, "<|end|>", &[]), added(257, "<l>", &["lstrip"]), added(258, "<r>", &["rstrip"]),
            added(259, "<w>", &["single_word"]), added(260, "<n>", &["normalized"]), added(261, "<|start|>", &[]),
            added(262, "<|end|><|start|>", &[]), added(263, "|end", &[]), think,
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": vocabulary(bytes()), "merges": [],
        },
    }))
}

/// GPT-2's letters for the 256 bytes.
fn bytes() -> impl Iterator<Item = String> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let (own, moved): (Vec<u32>, Vec<u32>) = (0..256).partition(|&byte| printable(byte));
    let shifted = (0..moved.len() as u32).map(|place| 0x100 + place);
    own.into_iter().chain(shifted).filter_map(char::from_u32).map(String::from)
}

/// Whole words between spaces; special tokens are words of the vocabulary as well, and so are some of their letters.
pub fn words() -> Arc<Tokenizer> {
    let words = ["<unk>", "<|end|>", "</s>", "Hello", "a", "<", ">", "/", "s"].map(String::from);
    load(json!({
        "version": "1.0",
        "added_tokens": [special(0, "<unk>"), special(1, "<|end|>"), special(2, "</s>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary(words), "unk_token": "<unk>"},
    }))
}

/// WordPiece as BERT's: spaces come back between words, and no token's text stands alone.
pub fn word_piece() -> Arc<Tokenizer> {
    let words = ["[UNK]", "[SEP]", "play", "##ing", "##ed", "chess", ".", "don", "'", "t"].map(String::from);
    load(json!({
        "version": "1.0",
        "added_tokens": [special(0, "[UNK]"), special(1, "[SEP]")],
        "normalizer": null,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": null,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "vocab": vocabulary(words), "unk_token": "[UNK]",
                  "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    }))
}
