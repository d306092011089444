//! JSON as bytes, with what some clients take for line ends escaped.

use std::io;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// `value` as JSON. A number that is no number becomes null.
pub(crate) fn bytes(value: &impl Serialize) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    write(&mut out, value);
    out.freeze()
}

/// Appends `value` as JSON.
pub(crate) fn write(out: &mut BytesMut, value: &impl Serialize) {
    let mut serializer = Serializer::with_formatter(Out(out), OneLine);
    let written = value.serialize(&mut serializer);
    debug_assert!(written.is_ok(), "our shapes have string keys, and memory takes every write");
}

/// As `BytesMut::writer`, but a piece is copied at once: an event has a dozen of them.
struct Out<'a>(&'a mut BytesMut);

impl io::Write for Out<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn write_all(&mut self, piece: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(piece);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes U+0085, U+2028 and U+2029: valid inside JSON strings, but clients that split server-sent events with a
/// Unicode-aware `splitlines` would cut an event there.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, len, escape)) = next_line_end(rest) {
            writer.write_all(&rest.as_bytes()[..at])?;
            writer.write_all(escape)?;
            rest = &rest[at + len..];
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

/// Byte offset and length of the next line end beyond ASCII, and its escape.
fn next_line_end(text: &str) -> Option<(usize, usize, &'static [u8])> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|&byte| byte == 0xC2 || byte == 0xE2) {
        at += found;
        match &bytes[at..] {
            [0xC2, 0x85, ..] => return Some((at, 2, br"\u0085")),
            [0xE2, 0x80, 0xA8, ..] => return Some((at, 3, br"\u2028")),
            [0xE2, 0x80, 0xA9, ..] => return Some((at, 3, br"\u2029")),
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_beyond_ascii_are_escaped_and_come_back_equal() {
        let text = "a\u{2028}b\u{2029}\u{85}é â\u{2027}“x” \u{a0}日本\n";
        let json = bytes(&text);
        let shown = std::str::from_utf8(&json).unwrap();
        assert_eq!(shown, "\"a\\u2028b\\u2029\\u0085é â\u{2027}“x” \u{a0}日本\\n\"");
        assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
    }

    #[test]
    fn keys_are_escaped_too() {
        let map = std::collections::BTreeMap::from([("k\u{2028}", 1)]);
        assert_eq!(&bytes(&map)[..], br#"{"k\u2028":1}"#);
    }

    #[test]
    fn a_number_that_is_no_number_becomes_null() {
        assert_eq!(&bytes(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.5])[..], b"[null,null,null,-0.5]");
    }
}
