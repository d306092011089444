//! Bytes become text as they come; a character that is not complete yet waits.

/// Turns a stream of bytes into text exactly as `String::from_utf8_lossy` would turn the whole: U+FFFD for what can
/// never become a character, but nothing for what still may.
#[derive(Clone, Debug, Default)]
pub(crate) struct Utf8Stream {
    /// Beginning of a character, at most three bytes between pushes.
    incomplete: Vec<u8>,
}

impl Utf8Stream {
    /// Appends to `text` what `bytes` completes.
    pub(crate) fn push(&mut self, bytes: &[u8], text: &mut String) {
        if self.incomplete.is_empty() {
            // Nearly every token is whole characters.
            if let Ok(whole) = std::str::from_utf8(bytes) {
                return text.push_str(whole);
            }
            self.incomplete.extend_from_slice(decode(bytes, text));
            return;
        }
        let mut joined = std::mem::take(&mut self.incomplete);
        joined.extend_from_slice(bytes);
        let kept = decode(&joined, text).len();
        joined.drain(..joined.len() - kept);
        self.incomplete = joined;
    }
}

/// Appends the text of `bytes` and returns the incomplete character at their end, if any.
fn decode<'a>(bytes: &'a [u8], text: &mut String) -> &'a [u8] {
    let mut seen = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        seen += chunk.valid().len() + chunk.invalid().len();
        if seen == bytes.len() && may_go_on(chunk.invalid()) {
            return chunk.invalid();
        }
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    &[]
}

/// These bytes begin a character and only its end is missing.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any bytes in any pieces: what came out, plus U+FFFD for an incomplete end, is the whole decoded at once.
        #[test]
        fn pieces_of_bytes_decode_as_the_whole(
            pieces in prop::collection::vec(
                prop_oneof![prop::collection::vec(any::<u8>(), 0..4), "\\PC{0,3}".prop_map(String::into_bytes)],
                0..20,
            ),
            cut in 0usize..200,
        ) {
            let mut whole = pieces.concat();
            whole.truncate(whole.len() - cut.min(whole.len()) / 8);
            let mut stream = Utf8Stream::default();
            let mut text = String::new();
            for piece in whole.chunks(1 + cut % 5) {
                stream.push(piece, &mut text);
                prop_assert!(stream.incomplete.len() < 4);
            }
            if !stream.incomplete.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }
    }
}
