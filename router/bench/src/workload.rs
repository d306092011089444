//! What requests ask. Request number n asks the same in every run with the same seed, whatever the order of answers.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// All requests of a run.
#[derive(Clone, Debug)]
pub struct Workload {
    pub prompt: Prompt,
    /// Tokens of each answer; end-of-sequence tokens do not end it.
    pub output_tokens: u32,
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub enum Prompt {
    /// The same for all: after the first one a prefix cache knows it.
    Text(String),
    /// So many common English words, drawn anew for each request. With nearly every tokenizer a word is a token.
    Words(u32),
}

/// One request's.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub prompt: String,
    pub output_tokens: u32,
}

impl Workload {
    pub(crate) fn ask(&self, number: u64) -> Ask {
        let prompt = match &self.prompt {
            Prompt::Text(text) => text.clone(),
            Prompt::Words(count) => words(*count, &mut StdRng::seed_from_u64(self.seed ^ number.rotate_left(32))),
        };
        Ask { prompt, output_tokens: self.output_tokens }
    }
}

fn words(count: u32, random: &mut StdRng) -> String {
    let mut text = String::with_capacity(count as usize * 6);
    for n in 0..count {
        if n > 0 {
            text.push(' ');
        }
        text.push_str(WORDS.choose(random).copied().unwrap_or_default());
    }
    text
}

/// Short and common, so that vocabularies have them whole, with the space before them.
const WORDS: [&str; 128] = [
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
    use super::*;

    fn workload(seed: u64) -> Workload {
        Workload { prompt: Prompt::Words(20), output_tokens: 1, seed }
    }

    #[test]
    fn a_prompt_has_as_many_words_as_asked_and_each_request_its_own() {
        let prompts: Vec<String> = (0..50).map(|number| workload(1).ask(number).prompt).collect();
        assert!(prompts.iter().all(|prompt| prompt.split(' ').count() == 20));
        let mut distinct = prompts.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 50);
    }

    #[test]
    fn a_seed_gives_the_same_prompts_again_and_another_one_others() {
        assert_eq!(workload(1).ask(7).prompt, workload(1).ask(7).prompt);
        assert_ne!(workload(1).ask(7).prompt, workload(2).ask(7).prompt);
    }
}
