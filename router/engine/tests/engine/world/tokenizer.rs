//! A tokenizer whose tokens are single bytes, and one special token.

use std::sync::{Arc, LazyLock};

use headrace_text::Tokenizer;
use serde_json::{Value, json};

/// The special token `<|end|>`; the last id of the vocabulary.
pub const END: u32 = 256;

pub fn bytes() -> Arc<Tokenizer> {
    static BYTES: LazyLock<Arc<Tokenizer>> = LazyLock::new(build);
    BYTES.clone()
}

/// The tokens of `text`.
pub fn ids(text: &str) -> Vec<u32> {
    bytes().encode(text, false).expect("encodes").ids
}

fn build() -> Arc<Tokenizer> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let (own, moved): (Vec<u32>, Vec<u32>) = (0..256).partition(|&byte| printable(byte));
    let shifted = (0..moved.len() as u32).map(|place| 0x100 + place);
    let alphabet = own.into_iter().chain(shifted).filter_map(char::from_u32);
    let vocabulary: serde_json::Map<String, Value> =
        alphabet.enumerate().map(|(id, spelt)| (spelt.to_string(), json!(id))).collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [{"id": END, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": vocabulary, "merges": []},
    });
    Arc::new(Tokenizer::from_bytes(tokenizer.to_string().as_bytes()).expect("a valid tokenizer"))
}
