//! Made-up prompts: random words, so many that they are a given number of tokens.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tokenizers::Tokenizer;

/// What prompts are made of. Clones share it.
#[derive(Clone)]
pub struct Words {
    /// Each with the space before it.
    words: Arc<[String]>,
    tokenizer: Option<Arc<Tokenizer>>,
}

#[derive(Debug, thiserror::Error)]
pub enum WordsError {
    #[error("cannot read the tokenizer {}: {reason}; name the tokenizer.json of the model that is served", path.display())]
    Tokenizer { path: PathBuf, reason: String },
    #[error("the tokenizer cannot encode or decode a prompt: {reason}")]
    Encode { reason: String },
    #[error("no made-up text is exactly {tokens} tokens with this tokenizer; ask for another length")]
    Inexact { tokens: u32 },
}

impl Words {
    /// Common English words, each of which nearly every tokenizer turns into one token.
    pub fn common() -> Self {
        Self { words: COMMON.iter().map(|word| format!(" {word}")).collect(), tokenizer: None }
    }

    /// Words that are one token each with the tokenizer of this `tokenizer.json`, or a directory that has one. Prompts
    /// have exactly as many tokens as asked, those that a server adds (such as a begin-of-sequence token) not counted.
    ///
    /// # Errors
    /// There is no such file, or it is no tokenizer.
    pub fn of_tokenizer(path: &Path) -> Result<Self, WordsError> {
        let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let tokenizer = Tokenizer::from_file(&path);
        let mut tokenizer = tokenizer.map_err(|error| WordsError::Tokenizer { path, reason: error.to_string() })?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| WordsError::Encode { reason: error.to_string() })?;
        let mut words = whole_words(&tokenizer);
        if words.len() < FEW {
            words = COMMON.iter().map(|word| format!(" {word}")).collect();
        }
        Ok(Self { words: words.into(), tokenizer: Some(Arc::new(tokenizer)) })
    }

    /// A text that begins with `before` and has `tokens` in all.
    ///
    /// # Errors
    /// The tokenizer allows none.
    pub(super) fn prompt(&self, before: &str, tokens: u32, random: &mut StdRng) -> Result<String, WordsError> {
        match &self.tokenizer {
            Some(tokenizer) => self.exact(tokenizer, before, tokens, random),
            None => {
                let known = before.split_whitespace().count();
                let words: String = self.draw((tokens as usize).saturating_sub(known), random).concat();
                let words = if before.is_empty() { words.trim_start() } else { &words };
                Ok(format!("{before}{words}"))
            }
        }
    }

    /// Words are added and taken away until the count is right: where each is a token, the first try is.
    fn exact(
        &self,
        tokenizer: &Tokenizer,
        before: &str,
        tokens: u32,
        random: &mut StdRng,
    ) -> Result<String, WordsError> {
        let wanted = tokens as usize;
        let mut words = self.draw(wanted.saturating_sub(encode(tokenizer, before)?.len()), random);
        for _ in 0..TRIES {
            let text = format!("{before}{}", words.concat());
            let ids = encode(tokenizer, &text)?;
            if ids.len() == wanted {
                return Ok(text);
            }
            let of_a_word = (ids.len() / words.len().max(1)).max(1);
            let words_off = (ids.len().abs_diff(wanted) / of_a_word).max(1);
            if ids.len() < wanted {
                words.extend(self.draw(words_off, random));
                continue;
            }
            // Cut within a word: not every tokenizer decodes and encodes that to the same tokens.
            let cut = tokenizer.decode(&ids[..wanted], false);
            let cut = cut.map_err(|error| WordsError::Encode { reason: error.to_string() })?;
            if cut.starts_with(before) && encode(tokenizer, &cut)?.len() == wanted {
                return Ok(cut);
            }
            // The oldest go: the newest may have as many tokens as are missing after that.
            words.drain(..words_off.min(words.len()));
        }
        Err(WordsError::Inexact { tokens })
    }

    fn draw(&self, count: usize, random: &mut StdRng) -> Vec<&str> {
        (0..count).map(|_| self.words.choose(random).map_or("", String::as_str)).collect()
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({}, exact: {})", self.words.len(), self.tokenizer.is_some())
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, WordsError> {
    let encoding = tokenizer.encode_fast(text, false);
    Ok(encoding.map_err(|error| WordsError::Encode { reason: error.to_string() })?.get_ids().to_vec())
}

/// Entries of the vocabulary that are a space and lower-case letters, by their ids: common ones come first.
fn whole_words(tokenizer: &Tokenizer) -> Vec<String> {
    let mut entries: Vec<(u32, String)> = tokenizer
        .get_vocab(false)
        .into_iter()
        .filter_map(|(entry, id)| {
            let word = SPACES.iter().find_map(|&space| entry.strip_prefix(space))?;
            let letters = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_lowercase());
            letters.then(|| (id, format!(" {word}")))
        })
        .collect();
    entries.sort_unstable();
    entries.into_iter().map(|(_, word)| word).collect()
}

/// How vocabularies write a space: byte-level ones, and SentencePiece's.
const SPACES: [char; 2] = ['Ġ', '▁'];
/// Fewer whole words than this make texts too much alike.
const FEW: usize = 64;
const TRIES: usize = 64;

/// Short and common, so that vocabularies have them whole, with the space before them.
const COMMON: [&str; 128] = [
    "the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "as", "with", "they", "at", "be",
    "this", "from", "have", "or", "by", "one", "had", "not", "but", "what", "all", "were", "when", "we", "there",
    "can", "an", "your", "which", "their", "said", "if", "do", "will", "each", "about", "how", "up", "out", "them",
    "then", "she", "many", "some", "so", "these", "would", "other", "into", "has", "more", "her", "two", "like", "him",
    "see", "time", "could", "no", "make", "than", "first", "been", "its", "who", "now", "people", "my", "made", "over",
    "did", "down", "only", "way", "find", "use", "may", "water", "long", "little", "very", "after", "words", "called",
    "just", "where", "most", "know", "get", "through", "back", "much", "before", "go", "good", "new", "write", "our",
    "used", "me", "man", "too", "any", "day", "same", "right", "look", "think", "also", "around", "another", "came",
    "come", "work", "three", "word", "must", "because", "does", "part", "even",
];

#[cfg(test)]
mod tests {
    use std::fs;

    use rand::SeedableRng;
    use serde_json::{Value, json};

    use super::*;

    /// A byte-level BPE whose vocabulary has single letters, the space before a letter, and `words` (of two letters) as
    /// one token each. If it does not decode, its texts have no `e`.
    fn tokenizer(words: &[String], decodes: bool) -> Tokenizer {
        let letters = ('a'..='z').map(String::from);
        let entries: Vec<String> = letters
            .chain(["Ġ".into()])
            .chain(('a'..='z').map(|c| format!("Ġ{c}")))
            .chain(words.iter().cloned())
            .collect();
        let vocab: serde_json::Map<String, Value> = (0..).zip(&entries).map(|(id, e)| (e.clone(), json!(id))).collect();
        let spaced = ('a'..='z').map(|c| json!(["Ġ", c.to_string()]));
        let whole = words.iter().map(|word| json!([&word[..word.len() - 1], &word[word.len() - 1..]]));
        let byte_level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let lossy = json!({"type": "Replace", "pattern": {"String": "e"}, "content": ""});
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": byte_level, "post_processor": null, "decoder": if decodes { &byte_level } else { &lossy },
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
                "merges": spaced.chain(whole).collect::<Vec<_>>()}
        });
        Tokenizer::from_bytes(file.to_string()).unwrap()
    }

    fn words(entries: &[String], decodes: bool) -> Words {
        let folder = tempfile::tempdir().unwrap();
        tokenizer(entries, decodes).save(folder.path().join("tokenizer.json"), false).unwrap();
        Words::of_tokenizer(folder.path()).unwrap()
    }

    fn count(words: &Words, text: &str) -> usize {
        encode(words.tokenizer.as_ref().unwrap(), text).unwrap().len()
    }

    fn many() -> Vec<String> {
        ('a'..='d').flat_map(|a| ('a'..='z').map(move |b| format!("Ġ{a}{b}"))).collect()
    }

    #[test]
    fn prompts_have_exactly_as_many_tokens_as_asked_where_words_are_tokens() {
        let words = words(&many(), true);
        assert_eq!(words.words.len(), many().len());
        for tokens in [1, 2, 31, 500] {
            let text = words.prompt("", tokens, &mut StdRng::seed_from_u64(u64::from(tokens))).unwrap();
            assert_eq!((count(&words, &text), text.split_whitespace().count()), (tokens as usize, tokens as usize));
        }
    }

    #[test]
    fn and_where_words_are_several_tokens_even_if_they_cannot_be_cut() {
        for decodes in [true, false] {
            let words = words(&[], decodes);
            assert_eq!(words.words.len(), COMMON.len(), "a vocabulary without words gets the common ones");
            for tokens in 10..80 {
                let text = words.prompt("", tokens, &mut StdRng::seed_from_u64(u64::from(tokens))).unwrap();
                assert_eq!(count(&words, &text), tokens as usize, "{text}");
            }
        }
    }

    #[test]
    fn a_length_that_no_text_has_is_refused() {
        let words = words(&many(), true);
        let before = words.prompt("", 4, &mut StdRng::seed_from_u64(1)).unwrap();
        let said = words.prompt(&before, 3, &mut StdRng::seed_from_u64(1)).unwrap_err().to_string();
        assert!(said.contains("exactly 3 tokens") && said.contains("ask for another length"), "{said}");
    }

    #[test]
    fn what_is_shared_stands_before_and_counts() {
        let words = words(&many(), true);
        let before = words.prompt("", 40, &mut StdRng::seed_from_u64(1)).unwrap();
        let text = words.prompt(&before, 50, &mut StdRng::seed_from_u64(2)).unwrap();
        assert!(text.starts_with(&before));
        assert_eq!(count(&words, &text), 50);
    }

    #[test]
    fn a_tokenizer_that_is_none_is_named_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let said = Words::of_tokenizer(folder.path()).unwrap_err().to_string();
        assert!(said.contains(path.to_str().unwrap()) && said.contains("name the tokenizer.json"), "{said}");
        fs::write(&path, "{}").unwrap();
        assert!(Words::of_tokenizer(&path).is_err());
    }
}
