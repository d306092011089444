//! Tokens of texts that come again: each turn of a chat sends all turns before it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crate::tokenizer::Encoding;

/// Remembers the tokens of texts, up to a number of bytes; what was not asked for longest goes first.
pub struct TokenCache {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<Arc<str>, Entry>,
    /// Texts by when they were last asked for.
    order: BTreeMap<u64, Arc<str>>,
    clock: u64,
    bytes: usize,
}

struct Entry {
    encoding: Arc<Encoding>,
    used: u64,
}

impl TokenCache {
    pub fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// The tokens of `text`, from the cache or else from `encode`, which runs without holding up others.
    pub fn get<E>(&self, text: &str, encode: impl FnOnce() -> Result<Encoding, E>) -> Result<Arc<Encoding>, E> {
        if let Some(encoding) = self.lock().find(text) {
            return Ok(encoding);
        }
        let encoding = Arc::new(encode()?);
        self.lock().insert(text, encoding.clone(), self.limit);
        Ok(encoding)
    }

    /// Bytes that are held.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// A panic of another thread leaves at worst an entry too few.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, text: &str) -> Option<Arc<Encoding>> {
        let entry = self.entries.get_mut(text)?;
        self.clock += 1;
        if let Some(text) = self.order.remove(&entry.used) {
            self.order.insert(self.clock, text);
        }
        entry.used = self.clock;
        Some(entry.encoding.clone())
    }

    fn insert(&mut self, text: &str, encoding: Arc<Encoding>, limit: usize) {
        let size = size(text, &encoding);
        // One text must not drive out all others; and another thread may have been first.
        if size > limit / 4 || self.entries.contains_key(text) {
            return;
        }
        while self.bytes + size > limit {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            if let Some(gone) = self.entries.remove(&oldest) {
                self.bytes -= self::size(&oldest, &gone.encoding);
            }
        }
        self.clock += 1;
        let text: Arc<str> = text.into();
        self.order.insert(self.clock, text.clone());
        self.entries.insert(text, Entry { encoding, used: self.clock });
        self.bytes += size;
    }
}

/// About what an entry takes.
fn size(text: &str, encoding: &Encoding) -> usize {
    const OVERHEAD: usize = 200;
    OVERHEAD + text.len() + size_of_val(&*encoding.ids) + size_of_val(&*encoding.offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 4096;

    fn encoding(text: &str) -> Encoding {
        Encoding { ids: text.bytes().map(u32::from).collect(), offsets: vec![] }
    }

    /// The tokens of `text`, and whether they had to be made.
    fn get(cache: &TokenCache, text: &str) -> (Arc<Encoding>, bool) {
        let mut made = false;
        let encode = || {
            made = true;
            Ok::<_, ()>(encoding(text))
        };
        (cache.get(text, encode).expect("it encodes"), made)
    }

    #[test]
    fn a_text_is_tokenized_once() {
        let cache = TokenCache::new(LIMIT);
        assert!(get(&cache, "a").1);
        let (encoding, made) = get(&cache, "a");
        assert_eq!((encoding.ids.as_slice(), made), (&[97][..], false));
    }

    #[test]
    fn an_error_is_not_remembered() {
        let cache = TokenCache::new(LIMIT);
        assert_eq!(cache.get("a", || Err(7)), Err(7));
        assert!(get(&cache, "a").1);
    }

    #[test]
    fn it_never_holds_more_than_its_limit_and_lets_the_oldest_go() {
        let cache = TokenCache::new(LIMIT);
        for number in 0..100 {
            get(&cache, &number.to_string());
            get(&cache, "kept");
            assert!(cache.bytes() <= LIMIT, "{}", cache.bytes());
        }
        assert!(!get(&cache, "kept").1, "it was asked for all the time");
        assert!(get(&cache, "0").1, "it was the oldest");
    }

    #[test]
    fn a_text_that_would_fill_it_is_not_kept() {
        let cache = TokenCache::new(LIMIT);
        get(&cache, "small");
        let long = "x".repeat(LIMIT / 4);
        assert!(get(&cache, &long).1 && get(&cache, &long).1);
        assert!(!get(&cache, "small").1);
    }
}
