//! A byte-level tokenizer without merges: one token per byte, and a few whole ones.

use std::sync::{Arc, LazyLock};

use headrace_text::Tokenizer;
use serde_json::{Value, json};

/// Ends an answer.
pub const END: u32 = 256;
/// A token whose text is U+2028, a line separator.
pub const LINE_SEPARATOR: u32 = 257;
/// One more than the highest id.
pub const VOCAB_SIZE: u32 = 258;

pub fn tokenizer() -> Arc<Tokenizer> {
    static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
        let json = serde_json::to_vec(&definition()).unwrap();
        Arc::new(Tokenizer::from_bytes(&json).unwrap())
    });
    TOKENIZER.clone()
}

/// Ids of a text, one per byte.
pub fn ids(text: &str) -> Vec<u32> {
    tokenizer().encode(text, true).unwrap().ids
}

fn definition() -> Value {
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let vocabulary = alphabet().enumerate().map(|(id, letter)| (letter.to_string(), json!(id)));
    json!({
        "version": "1.0",
        "added_tokens": [added(END, "<|end|>", true), added(LINE_SEPARATOR, "\u{2028}", false)],
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": Value::Object(vocabulary.collect()), "merges": [],
        },
    })
}

/// GPT-2's letters for the 256 bytes: printable ones stand for themselves.
fn alphabet() -> impl Iterator<Item = char> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let own = (0..256).filter(move |&byte| printable(byte));
    let moved = (0..256).filter(move |&byte| !printable(byte)).count() as u32;
    own.chain(0x100..0x100 + moved).filter_map(char::from_u32)
}

fn added(id: u32, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": special})
}
