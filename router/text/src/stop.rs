//! Texts that end an answer, wherever they occur in it.

/// Looks for several stop strings in a text that comes in pieces.
///
/// The match that *ends* first wins; of two that end at the same place, the longer. That is the one a reader would meet
/// first, and it does not depend on how the text was cut into pieces. An empty stop string never matches.
///
/// Each byte is looked at once per stop string (Knuth, Morris and Pratt), however the pieces fall: O(text × strings).
#[derive(Clone, Debug, Default)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    /// Bytes pushed so far.
    position: usize,
}

/// Where a stop string was found, in bytes of all text pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopMatch {
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Debug)]
struct Pattern {
    bytes: Box<[u8]>,
    /// `borders[i]`: length of the longest proper prefix of `bytes[..=i]` that is also its suffix.
    borders: Box<[usize]>,
    /// Length of the longest prefix of the pattern that the text ends with.
    matched: usize,
}

impl StopMatcher {
    /// The caller bounds how many stop strings there are, and how long.
    pub fn new<S: AsRef<str>>(stops: impl IntoIterator<Item = S>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.as_ref().is_empty());
        Self { patterns: stops.map(|stop| Pattern::new(stop.as_ref())).collect(), position: 0 }
    }

    /// There is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Looks at the next piece of text. After a match the rest of the piece is not looked at, and the matcher is done.
    pub fn push(&mut self, text: &str) -> Option<StopMatch> {
        if self.patterns.is_empty() {
            self.position += text.len();
            return None;
        }
        for &byte in text.as_bytes() {
            self.position += 1;
            let complete = self.patterns.iter_mut().filter_map(|pattern| pattern.step(byte)).max();
            if let Some(length) = complete {
                return Some(StopMatch { start: self.position - length, end: self.position });
            }
        }
        None
    }

    /// How many bytes at the end of the text may still become part of a match: whoever strips stop strings holds them
    /// back. Always whole characters.
    pub fn undecided(&self) -> usize {
        self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0)
    }
}

impl Pattern {
    /// `text` is not empty.
    fn new(text: &str) -> Self {
        let bytes: Box<[u8]> = text.as_bytes().into();
        let mut borders = vec![0; bytes.len()];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[at] != bytes[length] {
                length = borders[length - 1];
            }
            length += usize::from(bytes[at] == bytes[length]);
            borders[at] = length;
        }
        Self { bytes, borders: borders.into(), matched: 0 }
    }

    /// The pattern's length if this byte completes it.
    fn step(&mut self, byte: u8) -> Option<usize> {
        if self.matched == self.bytes.len() {
            self.matched = self.borders[self.matched - 1];
        }
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += usize::from(self.bytes[self.matched] == byte);
        (self.matched == self.bytes.len()).then_some(self.matched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: for each end, longest stop string first.
    fn search(text: &str, stops: &[String]) -> Option<StopMatch> {
        let ends = (1..=text.len()).filter(|&end| text.is_char_boundary(end));
        ends.filter_map(|end| {
            let found = stops.iter().filter(|stop| !stop.is_empty() && text[..end].ends_with(stop.as_str()));
            found.map(|stop| StopMatch { start: end - stop.len(), end }).min_by_key(|found| found.start)
        })
        .next()
    }

    /// The definition: the longest suffix that some stop string properly begins with.
    fn undecided(text: &str, stops: &[String]) -> usize {
        let starts = (0..text.len()).filter(|&start| text.is_char_boundary(start));
        let mut open = starts.filter(|&start| stops.iter().any(|stop| stop.starts_with(&text[start..])));
        open.next().map_or(0, |start| text.len() - start)
    }

    fn push_in_pieces(matcher: &mut StopMatcher, text: &str, sizes: &[usize]) -> Option<StopMatch> {
        let mut sizes = sizes.iter().cycle();
        let mut rest = text;
        while !rest.is_empty() {
            let size = sizes.next().copied().unwrap_or(1);
            let cut = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
            if let Some(found) = matcher.push(&rest[..cut]) {
                return Some(found);
            }
            rest = &rest[cut..];
        }
        None
    }

    proptest! {
        /// Few letters, so that overlaps and near misses are common.
        #[test]
        fn matches_equal_a_naive_search_however_the_text_is_cut(
            text in "[abé]{0,40}",
            stops in prop::collection::vec("[abé]{0,5}", 0..4),
            sizes in prop::collection::vec(0usize..5, 1..6).prop_filter("progress", |sizes| sizes.iter().any(|&s| s > 0)),
        ) {
            let mut matcher = StopMatcher::new(&stops);
            let found = push_in_pieces(&mut matcher, &text, &sizes);
            prop_assert_eq!(found, search(&text, &stops));
            if found.is_none() {
                prop_assert_eq!(matcher.undecided(), undecided(&text, &stops));
            }
        }
    }

    #[test]
    fn the_match_that_ends_first_wins_even_if_it_starts_later() {
        let mut matcher = StopMatcher::new(["abcd", "bc"]);
        assert_eq!(matcher.push("abcd"), Some(StopMatch { start: 1, end: 3 }));
    }

    #[test]
    fn of_two_matches_with_one_end_the_longer_wins() {
        let mut matcher = StopMatcher::new(["b", "ab"]);
        assert_eq!(matcher.push("xab"), Some(StopMatch { start: 1, end: 3 }));
    }

    #[test]
    fn an_empty_stop_string_never_matches() {
        let mut matcher = StopMatcher::new([""]);
        assert!(matcher.is_empty());
        assert_eq!(matcher.push("anything"), None);
    }
}
