//! Keeps the text of messages from becoming special tokens: a user who types `<|im_end|>` must not end a turn.
//!
//! Before a chat is rendered, characters of its strings that could be an end of a special token's text are replaced by
//! *twins*: characters of a private area that texts do not use. So wherever the template puts those
//! strings, also cut, joined or beside its own text, nothing of theirs completes a special token. What the template itself
//! writes is untouched. The rendered text is cut at the special tokens that are left; what is between them gets its
//! characters back and is tokenized by a copy of the tokenizer that takes special tokens for plain text.
//!
//! One thing is out of reach: a template that deletes characters from inside a message may bring two halves together. No
//! template is known to do that.

use std::collections::{BTreeSet, HashSet};
use std::ops::{Range, RangeInclusive};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value as Json};
use tokenizers::AddedToken;

use super::cache::TokenCache;
use super::conversation::Conversation;
use super::prompts::ChatPrompt;
use crate::error::{TokenizerError, one_line};
use crate::tokenizer::{Encoding, Tokenizer};

/// A stand-in for a character of a special token's text.
pub fn is_twin(c: char) -> bool {
    TWINS.contains(&c)
}

/// A tokenizer's special tokens, and the same tokenizer without an eye for them.
pub struct Guard {
    specials: Vec<Special>,
    finder: Option<AhoCorasick>,
    ends: Ends,
    plain: tokenizers::Tokenizer,
}

struct Special {
    id: u32,
    text: String,
    /// It takes the white space on its left, or right, with it.
    lstrip: bool,
    rstrip: bool,
}

/// How special tokens begin and end.
struct Ends {
    /// First and last characters; the place of each is its twin's number.
    chars: Vec<char>,
    /// First two characters, and last two.
    first: HashSet<(char, char)>,
    last: HashSet<(char, char)>,
    /// Beginnings and ends of every length but the whole.
    heads: HashSet<String>,
    tails: HashSet<String>,
    /// Characters of the longest of them.
    longest: usize,
}

impl Guard {
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let mut plain = tokenizer.inner().clone();
        plain.set_encode_special_tokens(true);
        plain.add_tokens(&[AddedToken::from(BEGUN, false).normalized(false)]);
        let added = tokenizer.inner().get_added_tokens_decoder();
        let special = added.into_iter().filter(|(_, token)| token.special && !token.content.is_empty());
        let mut specials: Vec<Special> = special
            .map(|(id, token)| Special { id, text: token.content, lstrip: token.lstrip, rstrip: token.rstrip })
            .collect();
        specials.sort_by_key(|special| special.id);
        let texts = specials.iter().map(|special| &special.text);
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts).ok();
        let ends = Ends::of(specials.iter().map(|special| special.text.as_str()));
        Self { specials, finder, ends, plain }
    }

    /// The conversation with twins in its strings. `constants`: strings that templates look for in messages, such as
    /// `</think>`; they stay as they are where they are no part of a special token.
    pub fn cover(&self, mut conversation: Conversation, constants: &BTreeSet<String>) -> Conversation {
        let kept = constants.iter().filter(|text| text.chars().count() >= 3 && !self.holds_special(text));
        let kept = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(kept).ok();
        let cover = |value: &mut Json| self.cover_value(value, kept.as_ref());
        for message in &mut conversation.messages {
            message.iter_mut().filter(|(name, _)| *name != "role").for_each(|(_, value)| cover(value));
        }
        conversation.tools.iter_mut().flatten().for_each(cover);
        conversation.documents.iter_mut().flatten().for_each(cover);
        conversation.kwargs.values_mut().for_each(cover);
        conversation
    }

    fn holds_special(&self, text: &str) -> bool {
        self.finder.as_ref().is_some_and(|finder| finder.is_match(text))
    }

    fn cover_value(&self, value: &mut Json, kept: Option<&AhoCorasick>) {
        match value {
            Json::String(text) => *text = self.cover_text(text, kept),
            Json::Array(items) => items.iter_mut().for_each(|item| self.cover_value(item, kept)),
            Json::Object(fields) => {
                let covered = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                    self.cover_value(&mut value, kept);
                    (self.cover_text(&name, kept), value)
                });
                *fields = covered.collect::<Map<_, _>>();
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    /// Twins for every character that is the end of a special token, or could become one by what comes beside it.
    fn cover_text(&self, text: &str, kept: Option<&AhoCorasick>) -> String {
        let chars: Vec<(usize, char)> = text.char_indices().collect();
        let mut covered = vec![false; chars.len()];
        self.ends.cover_pairs(&chars, &mut covered);
        let place = |byte: usize| chars.partition_point(|&(at, _)| at < byte);
        for range in kept.into_iter().flat_map(|kept| kept.find_iter(text)).map(|found| found.range()) {
            covered[place(range.start)..place(range.end)].fill(false);
        }
        for range in self.specials_in(text) {
            covered[place(range.start)] = true;
            covered[place(range.end) - 1] = true;
        }
        self.ends.cover_edges(text, &chars, &mut covered);
        let pick = |(&(_, c), covered): (&(usize, char), &bool)| match c {
            c if is_twin(c) => char::REPLACEMENT_CHARACTER,
            c if *covered => self.ends.twin(c),
            c => c,
        };
        chars.iter().zip(&covered).map(pick).collect()
    }

    fn specials_in(&self, text: &str) -> Vec<Range<usize>> {
        let found = self.finder.iter().flat_map(|finder| finder.find_iter(text));
        found.map(|found| found.range()).collect()
    }

    /// Bytes of a covered text once it has its characters back.
    pub fn bytes(&self, covered: &str) -> usize {
        covered.chars().map(|c| self.ends.original(c).len_utf8()).sum()
    }

    /// A special token of one character leaves nothing of a text that spells it.
    pub fn drops_text(&self) -> bool {
        self.specials.iter().any(|special| special.text.chars().nth(1).is_none())
    }

    /// The tokens of a text that was rendered from a covered conversation.
    pub fn encode(&self, covered: &str, cache: &TokenCache) -> Result<ChatPrompt, TokenizerError> {
        let mut prompt = ChatPrompt { text: String::new(), encoding: Encoding::default() };
        let mut start = 0;
        for found in self.finder.iter().flat_map(|finder| finder.find_iter(covered)) {
            let special = &self.specials[found.pattern().as_usize()];
            let before = &covered[start..found.start()];
            let kept = if special.lstrip { before.trim_end() } else { before };
            self.append_plain(kept, &mut prompt, cache)?;
            let after = &covered[found.end()..];
            let taken = if special.rstrip { after.len() - after.trim_start().len() } else { 0 };
            let at = prompt.text.len();
            prompt.text.push_str(&covered[start + kept.len()..found.end() + taken]);
            prompt.encoding.ids.push(special.id);
            prompt.encoding.offsets.push((at, prompt.text.len()));
            start = found.end() + taken;
        }
        self.append_plain(&covered[start..], &mut prompt, cache)?;
        Ok(prompt)
    }

    /// Text between special tokens. A tokenizer may begin a text otherwise than it goes on, so what is not the beginning
    /// is tokenized after a token that stands for all that was before.
    fn append_plain(&self, covered: &str, prompt: &mut ChatPrompt, cache: &TokenCache) -> Result<(), TokenizerError> {
        if covered.is_empty() {
            return Ok(());
        }
        let at = prompt.text.len();
        let text = self.ends.uncover(covered);
        let lead = if at == 0 { "" } else { BEGUN };
        let led = [lead, &text].concat();
        let encoding = cache.get(&led, || self.without_specials(&text, self.encode_plain(lead, &text)?))?;
        prompt.encoding.append(&encoding, at);
        prompt.text.push_str(&text);
        Ok(())
    }

    fn encode_plain(&self, lead: &str, text: &str) -> Result<Encoding, TokenizerError> {
        let encoding = self.plain.encode([lead, text].concat(), false);
        let encoding = encoding.map_err(|error| TokenizerError::Encode { reason: one_line(error) })?;
        let skipped = usize::from(!lead.is_empty());
        let offsets = encoding.get_offsets().iter().skip(skipped);
        let offsets = offsets.map(|&(start, end)| (start.saturating_sub(lead.len()), end.saturating_sub(lead.len())));
        Ok(Encoding { ids: encoding.get_ids()[skipped..].to_vec(), offsets: offsets.collect() })
    }

    /// Some vocabularies hold special tokens as words: text that spells one finds it there. Such text is tokenized
    /// character by character; what is special even so is left out.
    fn without_specials(&self, text: &str, encoding: Encoding) -> Result<Encoding, TokenizerError> {
        let spelt = |id: u32, (start, end): (usize, usize)| {
            let special = self.specials.binary_search_by_key(&id, |special| special.id);
            special
                .is_ok_and(|place| text.get(start..end).is_some_and(|text| text.contains(&self.specials[place].text)))
        };
        if !encoding.ids.iter().zip(&encoding.offsets).any(|(&id, &range)| spelt(id, range)) {
            return Ok(encoding);
        }
        let mut rest = Encoding::default();
        for (&id, &(start, end)) in encoding.ids.iter().zip(&encoding.offsets) {
            if !spelt(id, (start, end)) {
                rest.ids.push(id);
                rest.offsets.push((start, end));
                continue;
            }
            for (at, c) in text[start..end].char_indices() {
                let single = self.encode_plain(BEGUN, &c.to_string())?;
                for (&id, &(first, last)) in single.ids.iter().zip(&single.offsets) {
                    if !spelt(id, (start + at + first, start + at + last)) {
                        rest.ids.push(id);
                        rest.offsets.push((start + at + first, start + at + last));
                    }
                }
            }
        }
        Ok(rest)
    }
}

impl Ends {
    fn of<'a>(specials: impl Iterator<Item = &'a str>) -> Self {
        let mut chars = BTreeSet::new();
        let mut ends = Self {
            chars: Vec::new(),
            first: HashSet::new(),
            last: HashSet::new(),
            heads: HashSet::new(),
            tails: HashSet::new(),
            longest: 0,
        };
        for special in specials {
            chars.extend(special.chars().next());
            chars.extend(special.chars().next_back());
            ends.first.extend(first_two(special.chars()));
            ends.last.extend(first_two(special.chars().rev()));
            for (at, _) in special.char_indices().skip(1) {
                ends.heads.insert(special[..at].to_owned());
                ends.tails.insert(special[at..].to_owned());
            }
            ends.longest = ends.longest.max(special.chars().count());
        }
        ends.chars = chars.into_iter().collect();
        ends
    }

    /// A first character before the second one of its token, and a last one after the one before it.
    fn cover_pairs(&self, chars: &[(usize, char)], covered: &mut [bool]) {
        for place in 0..chars.len().saturating_sub(1) {
            let (a, b) = (chars[place].1, chars[place + 1].1);
            covered[place] |= self.first.contains(&(a, b));
            covered[place + 1] |= self.last.contains(&(b, a));
        }
    }

    /// What begins a special token at the end of the text, and what ends one at its beginning.
    fn cover_edges(&self, text: &str, chars: &[(usize, char)], covered: &mut [bool]) {
        for count in 1..=chars.len().min(self.longest) {
            let place = chars.len() - count;
            covered[place] |= self.heads.contains(&text[chars[place].0..]);
            let end = chars.get(count).map_or(text.len(), |&(at, _)| at);
            covered[count - 1] |= self.tails.contains(&text[..end]);
        }
    }

    fn twin(&self, c: char) -> char {
        let place = self.chars.iter().position(|&end| end == c);
        place.and_then(|place| TWINS.clone().nth(place)).unwrap_or(c)
    }

    /// The text with its characters back.
    fn uncover(&self, text: &str) -> String {
        text.chars().map(|c| self.original(c)).collect()
    }

    /// The character that `c` stands in for, or `c`.
    fn original(&self, c: char) -> char {
        match is_twin(c) {
            true => self.chars.get((c as u32 - *TWINS.start() as u32) as usize).copied().unwrap_or(c),
            false => c,
        }
    }
}

fn first_two(mut chars: impl Iterator<Item = char>) -> Option<(char, char)> {
    Some((chars.next()?, chars.next()?))
}

/// The end of Unicode's last private area: more than there are characters that special tokens begin or end with.
const TWINS: RangeInclusive<char> = '\u{10f000}'..='\u{10ffff}';

/// Stands for the text before.
const BEGUN: &str = "\u{10ffff}";
