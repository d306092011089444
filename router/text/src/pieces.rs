//! A table of what each token adds to the text, for decoders that treat tokens one by one.
//!
//! Two families cover nearly every language model: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM), whose tokens spell
//! bytes in a private alphabet, and SentencePiece (Llama 2, Mistral, Gemma), whose tokens write spaces as `▁` and
//! unknown bytes as `<0x0A>`. For both, text is the concatenation of each token's bytes, but for spaces at its very
//! start. Any other decoder has no table, and `window.rs` takes over.

use serde::Deserialize;
use tokenizers::Tokenizer;

/// Bytes of every token, one array for all.
pub(crate) struct Pieces {
    bytes: Box<[u8]>,
    /// Token `id` owns `bytes[ends[id - 1]..ends[id]]`.
    ends: Box<[u32]>,
    /// The vocabulary is spelt in the alphabet of bytes.
    pub(crate) byte_level: bool,
    pub(crate) lead: Lead,
}

/// What is left out at the very start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    Keep,
    /// Up to `count` times `content`.
    Strip {
        content: char,
        count: usize,
    },
    /// Every `marker` of the first token.
    Drop {
        marker: char,
    },
}

/// The part of a decoder's JSON that decides whether tokens can be treated one by one.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum Decoder {
    ByteLevel,
    Sequence {
        decoders: Vec<Decoder>,
    },
    Replace {
        pattern: Pattern,
        content: String,
    },
    ByteFallback,
    Fuse,
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    Metaspace {
        replacement: char,
        prepend_scheme: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
enum Pattern {
    String(String),
    Regex(#[allow(dead_code, reason = "only its presence matters")] String),
}

/// How a token's vocabulary entry becomes bytes.
struct Spelling {
    byte_level: bool,
    replace: Vec<(String, String)>,
    byte_fallback: bool,
    lead: Lead,
}

impl Pieces {
    /// `None`: this tokenizer's decoder looks at more than one token at a time, or is one we do not know.
    pub(crate) fn of(tokenizer: &Tokenizer, vocab_size: u32) -> Option<Self> {
        let json = serde_json::to_value(tokenizer.get_decoder()?).ok()?;
        let spelling = Spelling::of(serde_json::from_value(json).ok()?)?;
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(vocab_size as usize);
        for id in 0..vocab_size {
            if let Some(token) = tokenizer.id_to_token(id) {
                spelling.write(&token, &mut bytes);
            }
            ends.push(u32::try_from(bytes.len()).ok()?);
        }
        Some(Self { bytes: bytes.into(), ends: ends.into(), byte_level: spelling.byte_level, lead: spelling.lead })
    }

    /// What the token adds; nothing for an id outside the vocabulary.
    pub(crate) fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }
}

impl Spelling {
    fn of(decoder: Decoder) -> Option<Self> {
        let plain = Self { byte_level: false, replace: Vec::new(), byte_fallback: false, lead: Lead::Keep };
        match decoder {
            Decoder::ByteLevel => Some(Self { byte_level: true, ..plain }),
            Decoder::Metaspace { replacement, prepend_scheme } => {
                let keep = prepend_scheme == "never";
                let lead = if keep { Lead::Keep } else { Lead::Drop { marker: replacement } };
                Some(Self { replace: vec![(replacement.to_string(), " ".into())], lead, ..plain })
            }
            Decoder::Sequence { decoders } => match <[Decoder; 1]>::try_from(decoders) {
                Ok([only]) => Self::of(only),
                Err(decoders) => Self::of_sequence(decoders, plain),
            },
            _ => None,
        }
    }

    /// Replacements, then bytes, then what happens to the fused text: SentencePiece's order, and no other.
    fn of_sequence(decoders: Vec<Decoder>, plain: Self) -> Option<Self> {
        let mut spelling = plain;
        let mut fused = false;
        for decoder in decoders {
            match decoder {
                Decoder::Replace { pattern: Pattern::String(from), content } if !fused && !spelling.byte_fallback => {
                    spelling.replace.push((from, content));
                }
                Decoder::ByteFallback if !fused => spelling.byte_fallback = true,
                Decoder::Fuse => fused = true,
                Decoder::Strip { content, start, stop: 0 } if fused && spelling.lead == Lead::Keep => {
                    spelling.lead = Lead::Strip { content, count: start };
                }
                _ => return None,
            }
        }
        Some(spelling)
    }

    fn write(&self, token: &str, bytes: &mut Vec<u8>) {
        if self.byte_level {
            match token.chars().map(byte_of).collect::<Option<Vec<u8>>>() {
                Some(spelt) => bytes.extend(spelt),
                None => bytes.extend(token.as_bytes()), // An added token that is not spelt in the alphabet.
            }
            return;
        }
        let token = self.replace.iter().fold(token.to_owned(), |token, (from, to)| token.replace(from, to));
        match fallback_byte(&token).filter(|_| self.byte_fallback) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(token.as_bytes()),
        }
    }
}

/// The byte that a character of byte-level BPE's alphabet stands for: printable ones are themselves, the other 68
/// follow from U+0100 on, in order.
fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => printable(byte).then_some(byte),
        Err(_) => (0..=u8::MAX).filter(|&byte| !printable(byte)).nth(code as usize - 0x100),
    }
}

fn printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// `<0x0A>` is byte 10.
pub(crate) fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2).then(|| u8::from_str_radix(hex, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_spells_every_byte_once() {
        let mut spelt: Vec<u8> = ('!'..='\u{143}').filter_map(byte_of).collect();
        spelt.sort_unstable();
        assert_eq!(spelt, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of('\u{144}'), None);
        assert_eq!(byte_of(' '), None);
    }

    #[test]
    fn a_fallback_byte_is_exactly_two_hex_digits() {
        assert_eq!(fallback_byte("<0x0A>"), Some(10));
        assert_eq!(fallback_byte("<0xAB1>"), None);
        assert_eq!(fallback_byte("<0xZZ>"), None);
        assert_eq!(fallback_byte("0x0A"), None);
    }

    #[test]
    fn a_strip_before_the_fuse_has_no_table() {
        let json =
            r#"{"type":"Sequence","decoders":[{"type":"Strip","content":" ","start":1,"stop":0},{"type":"Fuse"}]}"#;
        assert!(Spelling::of(serde_json::from_str(json).expect("a decoder")).is_none());
    }
}
