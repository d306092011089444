//! The text of one answer: as it grows, where it stops, and what is kept of it.

use std::ops::Range;
use std::sync::Arc;

use compact_str::CompactString;
use headrace_scheduler::TokenId;
use headrace_text::{Detokenizer, SpecialTokens, StopMatch, StopMatcher, Tokenizer};

use crate::generation::StopText;

/// Two texts grow side by side: the *shown* one, special tokens included, in which stop strings are looked for; and the
/// *plain* one, without them, which is the answer. Events carry the one or the other.
pub(crate) struct AnswerText {
    tokenizer: Arc<Tokenizer>,
    stop_text: StopText,
    /// Whether events carry the shown text or the plain one.
    specials: SpecialTokens,
    stops: StopMatcher,
    shown: Detokenizer,
    /// What the newest token added to the shown text; kept for its allocation.
    piece: String,
    /// Bytes of shown text so far.
    shown_len: usize,
    /// Its end that is not in an event yet, because it may become a stop string that must never appear.
    held: String,
    /// Where special tokens lie in the shown text; kept only while there are stop strings.
    special_spans: Vec<Range<usize>>,
    plain: Detokenizer,
    text: String,
    /// Bytes of the plain text that were in events, where events carry that.
    told: usize,
}

/// What a token adds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// For the token's event.
    pub text: CompactString,
    pub special: bool,
    /// A stop string is complete: the answer ends here.
    pub stopped: bool,
}

impl AnswerText {
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        stops: &[String],
        stop_text: StopText,
        specials: SpecialTokens,
    ) -> Self {
        Self {
            stop_text,
            specials,
            stops: StopMatcher::new(stops),
            shown: Detokenizer::new(tokenizer.clone(), SpecialTokens::Show),
            piece: String::new(),
            shown_len: 0,
            held: String::new(),
            special_spans: Vec::new(),
            plain: Detokenizer::new(tokenizer.clone(), SpecialTokens::Skip),
            text: String::new(),
            told: 0,
            tokenizer,
        }
    }

    pub(crate) fn push(&mut self, token: TokenId) -> Growth {
        let special = self.tokenizer.is_special(token);
        self.plain.push_into(token, &mut self.text);
        if self.specials == SpecialTokens::Skip && self.stops.is_empty() {
            return Growth { text: self.tell_until(self.text.len()), special, stopped: false };
        }
        self.piece.clear();
        self.shown.push_into(token, &mut self.piece);
        let start = self.shown_len;
        self.shown_len += self.piece.len();
        if special && !self.stops.is_empty() {
            self.special_spans.push(start..self.shown_len);
        }
        let found = self.stops.push(&self.piece);
        let text = match (self.specials, found) {
            (SpecialTokens::Show, Some(found)) => self.stop_at(found),
            (SpecialTokens::Show, None) => self.release(),
            (SpecialTokens::Skip, Some(found)) => {
                self.cut(found);
                self.tell_until(self.text.len())
            }
            (SpecialTokens::Skip, None) => self.tell_until(self.plain_len(self.shown_len - self.undecided())),
        };
        Growth { text, special, stopped: found.is_some() }
    }

    /// The answer ends without a stop string: text that was held back, for the last event.
    pub(crate) fn finish(&mut self) -> CompactString {
        self.text.push_str(&self.plain.finish());
        match self.specials {
            SpecialTokens::Skip => self.tell_until(self.text.len()),
            SpecialTokens::Show => {
                self.held.push_str(&self.shown.finish());
                CompactString::from(std::mem::take(&mut self.held))
            }
        }
    }

    /// The whole answer.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// Bytes at the end of the shown text that must wait, because they may become a stop string.
    fn undecided(&self) -> usize {
        if self.stop_text == StopText::Strip { self.stops.undecided() } else { 0 }
    }

    /// The plain text up to byte `end` that was in no event yet.
    fn tell_until(&mut self, end: usize) -> CompactString {
        // Where a special token cuts a character in two, the texts differ in that character, and `end` may fall behind.
        let text = CompactString::new(self.text.get(self.told..end).unwrap_or_default());
        self.told += text.len();
        text
    }

    /// What of the newest piece, and of what was held before it, may be shown.
    fn release(&mut self) -> CompactString {
        if self.stop_text == StopText::Keep || self.stops.is_empty() {
            return CompactString::new(&self.piece);
        }
        self.held.push_str(&self.piece);
        let decided = self.held.len() - self.stops.undecided();
        self.held.drain(..decided).collect()
    }

    /// Cuts the answer at the stop string. Returns the shown text of the event that completed it.
    fn stop_at(&mut self, found: StopMatch) -> CompactString {
        self.cut(found);
        match self.stop_text {
            StopText::Keep => CompactString::new(&self.piece),
            StopText::Strip => {
                self.held.push_str(&self.piece);
                // What was shown already ends where the match starts, at the latest: the rest was undecided.
                self.held.truncate(self.held.len().saturating_sub(self.shown_len - found.start));
                CompactString::from(std::mem::take(&mut self.held))
            }
        }
    }

    /// Ends the plain text where the stop string ends, or where it begins.
    fn cut(&mut self, found: StopMatch) {
        let at = if self.stop_text == StopText::Keep { found.end } else { found.start };
        self.text.truncate(self.plain_len(at));
    }

    /// Bytes of plain text that byte `at` of the shown text has before it. Counted from the end: there the two differ by
    /// special tokens only, while at the start a decoder may treat leading spaces differently.
    fn plain_len(&self, at: usize) -> usize {
        let after = self.special_spans.iter().rev().take_while(|span| span.end > at);
        let special: usize = after.map(|span| span.end - span.start.max(at)).sum();
        let dropped = (self.shown_len - at).saturating_sub(special);
        let mut kept = self.text.len().saturating_sub(dropped);
        while !self.text.is_char_boundary(kept) {
            kept -= 1;
        }
        kept
    }
}

#[cfg(test)]
#[path = "../tests/engine/world/tokenizer.rs"]
mod tokenizer;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::tokenizer::{END, bytes, ids};
    use super::*;

    /// The stop string that ends first, the longer of two; on the whole text.
    fn search(shown: &str, stops: &[String]) -> Option<(usize, usize)> {
        let ends = (1..=shown.len()).filter(|&end| shown.is_char_boundary(end));
        ends.filter_map(|end| {
            let lengths = stops.iter().filter(|stop| !stop.is_empty() && shown[..end].ends_with(stop.as_str()));
            lengths.map(|stop| end - stop.len()).min().map(|start| (start, end))
        })
        .next()
    }

    /// The first `at` bytes of the shown text without special tokens.
    fn plain(tokens: &[TokenId], at: usize) -> String {
        let mut left = at;
        let mut text = String::new();
        for &token in tokens {
            let piece = bytes().token_text(token);
            let seen = &piece[..left.min(piece.len())];
            left -= seen.len();
            if token != END {
                text.push_str(seen);
            }
        }
        text
    }

    fn any_tokens() -> impl Strategy<Value = Vec<TokenId>> {
        prop::collection::vec(prop::sample::select([ids("ab<|"), vec![END]].concat()), 0..40)
    }

    proptest! {
        /// Also where stop strings begin, end or lie within special tokens.
        #[test]
        fn events_and_answer_equal_a_search_in_the_whole_text(
            tokens in any_tokens(),
            stops in prop::collection::vec("[ab]{0,3}|a<|d\\|>a?|b<\\|end|<", 0..3),
            strip in any::<bool>(),
        ) {
            let mode = if strip { StopText::Strip } else { StopText::Keep };
            let mut answer = AnswerText::new(bytes(), &stops, mode, SpecialTokens::Show);
            let shown: String = tokens.iter().map(|&token| bytes().token_text(token)).collect();
            let mut events = String::new();
            let mut grown = 0;
            let mut stopped = false;
            for &token in &tokens {
                let growth = answer.push(token);
                events.push_str(&growth.text);
                grown += bytes().token_text(token).len();
                stopped = growth.stopped;
                prop_assert_eq!(growth.special, token == END);
                if stopped {
                    break;
                }
            }
            match search(&shown, &stops) {
                Some((start, end)) => {
                    prop_assert!(stopped);
                    prop_assert_eq!(events, if strip { &shown[..start] } else { &shown[..grown] });
                    prop_assert_eq!(answer.into_text(), plain(&tokens, if strip { start } else { end }));
                }
                None => {
                    prop_assert!(!stopped);
                    events.push_str(&answer.finish());
                    prop_assert_eq!(&events, &shown);
                    prop_assert_eq!(answer.into_text(), plain(&tokens, shown.len()));
                }
            }
        }

        /// However stop strings and special tokens fall, and what was in an event is never taken back.
        #[test]
        fn events_without_special_tokens_are_together_the_answer(
            tokens in any_tokens(),
            stops in prop::collection::vec("[ab]{0,3}|a<|d\\|>a?|b<\\|end|<", 0..3),
            strip in any::<bool>(),
        ) {
            let mode = if strip { StopText::Strip } else { StopText::Keep };
            let mut answer = AnswerText::new(bytes(), &stops, mode, SpecialTokens::Skip);
            let mut reference = AnswerText::new(bytes(), &stops, mode, SpecialTokens::Show);
            let mut events = String::new();
            let mut stopped = false;
            for &token in &tokens {
                let growth = answer.push(token);
                events.push_str(&growth.text);
                prop_assert_eq!(growth.stopped, reference.push(token).stopped);
                stopped = growth.stopped;
                if stopped {
                    break;
                }
            }
            if !stopped {
                events.push_str(&answer.finish());
                reference.finish();
            }
            let text = answer.into_text();
            prop_assert_eq!(&events, &text);
            prop_assert_eq!(text, reference.into_text());
        }
    }

    #[test]
    fn text_that_was_held_back_is_not_lost_to_a_special_token() {
        let mut answer = AnswerText::new(bytes(), &["abc".to_owned()], StopText::Strip, SpecialTokens::Skip);
        let tokens = [ids("ab"), vec![END]].concat();
        let pushed: Vec<CompactString> = tokens.iter().map(|&token| answer.push(token).text).collect();
        assert_eq!(pushed, ["", "", "ab"]);
    }

    #[test]
    fn text_that_may_become_a_stop_string_is_held_back_only_when_it_is_stripped() {
        for (mode, texts) in [(StopText::Keep, ["a", "b", "a"]), (StopText::Strip, ["", "", "ab"])] {
            let mut answer = AnswerText::new(bytes(), &["abc".to_owned()], mode, SpecialTokens::Show);
            let pushed: Vec<CompactString> = ids("aba").iter().map(|&token| answer.push(token).text).collect();
            assert_eq!(pushed, texts);
            assert_eq!(answer.finish(), if mode == StopText::Keep { "" } else { "a" });
        }
    }

    #[test]
    fn an_answer_that_ends_inside_a_character_keeps_its_complete_ones() {
        let mut answer = AnswerText::new(bytes(), &[], StopText::Keep, SpecialTokens::Show);
        let texts: String = ids("aé")[..2].iter().map(|&token| answer.push(token).text).collect();
        assert_eq!((texts.as_str(), answer.finish().as_str()), ("a", ""));
        assert_eq!(answer.into_text(), "a");
    }
}
