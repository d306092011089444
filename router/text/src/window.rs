//! Incremental text for decoders that have no table: decode a few tokens again and take what is new.

use crate::pieces::fallback_byte;
use crate::tokenizer::Tokenizer;

/// The last tokens of an answer: some whose text is out already, as context, then some whose text is not.
///
/// Context matters because a decoder may write a token differently at the start of a text (without its leading space).
/// Both parts are bounded, so a token costs the decoding of at most `MAX_CONTEXT + 2 * MAX_HELD` ids, twice.
#[derive(Default)]
pub(crate) struct Window {
    ids: Vec<u32>,
    /// How many of `ids` are context.
    context: usize,
}

/// Context that has no text of its own is kept, with what was before it, up to here.
const MAX_CONTEXT: usize = 8;
/// A character is at most four tokens long; what is held longer will never become one.
const MAX_HELD: usize = 8;

impl Window {
    /// Appends to `text` what the token completes.
    pub(crate) fn push(&mut self, id: u32, tokenizer: &Tokenizer, text: &mut String) {
        self.ids.push(id);
        let held = self.ids.len() - self.context;
        match self.held_text(tokenizer) {
            Some(new) if !new.ends_with(char::REPLACEMENT_CHARACTER) || self.spells_replacement(tokenizer) => {
                text.push_str(&new);
            }
            _ if held < MAX_HELD => return,
            new => text.push_str(&new.unwrap_or_else(|| decode(&self.ids[self.context..], tokenizer))),
        }
        self.keep_last_group(tokenizer);
    }

    /// Complete characters of the held tokens.
    pub(crate) fn finish(&mut self, tokenizer: &Tokenizer) -> String {
        let text = self.held_text(tokenizer).unwrap_or_default();
        self.context = self.ids.len();
        text.trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned()
    }

    /// What the held tokens add to the context's text; `None` while they change it, as the first byte of a character
    /// does to the bytes before it where a decoder takes or leaves a run of bytes as one.
    fn held_text(&self, tokenizer: &Tokenizer) -> Option<String> {
        let before = decode(&self.ids[..self.context], tokenizer);
        let after = decode(&self.ids, tokenizer);
        after.strip_prefix(&before).map(str::to_owned)
    }

    /// The held tokens write U+FFFD out, as a character of its own or by its three bytes: it stands for nothing missing.
    fn spells_replacement(&self, tokenizer: &Tokenizer) -> bool {
        let mut bytes = Vec::new();
        for &id in &self.ids[self.context..] {
            let entry = tokenizer.entry(id).unwrap_or_default();
            match fallback_byte(&entry) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend_from_slice(entry.as_bytes()),
            }
        }
        std::str::from_utf8(&bytes).is_ok_and(|text| text.ends_with(char::REPLACEMENT_CHARACTER))
    }

    /// The held tokens, whose text is out now, become the context. It begins where a character begins, and has text, so
    /// that what follows is not taken for the start of one.
    fn keep_last_group(&mut self, tokenizer: &Tokenizer) {
        let blank = decode(&self.ids[self.context..], tokenizer).is_empty();
        if !blank || self.context > MAX_CONTEXT {
            self.ids.drain(..self.context);
        }
        self.context = self.ids.len();
    }
}

/// A decoder that fails on ids of its own vocabulary has nothing to show for them.
fn decode(ids: &[u32], tokenizer: &Tokenizer) -> String {
    tokenizer.decode(ids, false).unwrap_or_default()
}
