//! What requests ask: the same in every run with the same seed, whatever the order of answers.

mod file;
mod shapes;
mod words;

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;

pub use file::{FileError, LineProblem, Listed};
pub use shapes::{Lengths, Shape};
pub use words::{Words, WordsError};

/// All requests of a run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// As people know it: in reports.
    pub name: String,
    pub asks: Asks,
    /// What made-up prompts are made of.
    pub words: Words,
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub enum Asks {
    /// The same for all: after the first one a prefix cache knows it.
    Same { prompt: String, output_tokens: u32 },
    /// Of these lengths, each prompt drawn anew.
    Shaped(Shape),
    /// One after another, and from the first one again.
    Listed(Arc<[Listed]>),
}

/// One request's.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub prompt: String,
    /// Of the answer; end-of-sequence tokens do not end it.
    pub output_tokens: u32,
}

impl Workload {
    /// The request at this place of a run (from 0), whose requests are numbered from `first`: lengths depend on the place,
    /// made-up prompts on the number.
    ///
    /// # Errors
    /// The tokenizer allows no prompt of that length.
    pub(crate) fn ask(&self, first: u64, place: u64) -> Result<Ask, WordsError> {
        let number = first + place;
        let mut random = self.random(number);
        let (prompt, output_tokens) = match &self.asks {
            Asks::Same { prompt, output_tokens } => (prompt.clone(), *output_tokens),
            Asks::Shaped(shape) => {
                let Lengths { shared, prompt, output } = shape.lengths(place, self.seed);
                (self.words.prompt(&self.shared(first, shared)?, prompt, &mut random)?, output)
            }
            Asks::Listed(requests) => {
                let listed = &requests[(place % requests.len().max(1) as u64) as usize];
                let prompt = match &listed.prompt {
                    file::Prompt::Text(text) => text.clone(),
                    file::Prompt::Tokens(tokens) => self.words.prompt("", *tokens, &mut random)?,
                };
                (prompt, listed.output_tokens)
            }
        };
        Ok(Ask { prompt, output_tokens })
    }

    /// What all requests of a run begin with; another run, and the warm-up before, begin otherwise.
    fn shared(&self, first: u64, tokens: u32) -> Result<String, WordsError> {
        if tokens == 0 { Ok(String::new()) } else { self.words.prompt("", tokens, &mut self.random(!first)) }
    }

    /// Multiplied, so that no run's numbers with one seed meet another run's with another.
    fn random(&self, number: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_mul(SPREAD) ^ number)
    }
}

/// Odd and without a pattern: 2⁶⁴ over the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(shape: Shape, seed: u64) -> Workload {
        Workload { name: "test".into(), asks: Asks::Shaped(shape), words: Words::common(), seed }
    }

    fn prompt(workload: &Workload, number: u64) -> String {
        workload.ask(0, number).unwrap().prompt
    }

    const TWENTY: Shape = Shape::Fixed { prompt: 20, output: 1 };

    #[test]
    fn a_prompt_has_as_many_words_as_asked_and_each_request_its_own() {
        let prompts: Vec<String> = (0..50).map(|number| prompt(&workload(TWENTY, 1), number)).collect();
        assert!(prompts.iter().all(|prompt| prompt.split(' ').count() == 20));
        let mut distinct = prompts.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 50);
    }

    #[test]
    fn a_seed_gives_the_same_prompts_again_and_another_one_others() {
        assert_eq!(prompt(&workload(TWENTY, 1), 7), prompt(&workload(TWENTY, 1), 7));
        assert_ne!(prompt(&workload(TWENTY, 1), 7), prompt(&workload(TWENTY, 2), 7));
    }

    #[test]
    fn another_first_number_gives_other_prompts_of_the_same_lengths() {
        let workload = workload(Shape::Seed, 1);
        for place in 0..20 {
            let (one, other) = (workload.ask(0, place).unwrap(), workload.ask(1 << 32, place).unwrap());
            assert_eq!(one.prompt.split(' ').count(), other.prompt.split(' ').count());
            assert_ne!(one.prompt, other.prompt);
        }
    }

    #[test]
    fn prompts_of_prefix_begin_with_the_same_900_tokens_and_differ_after_them() {
        let (one, other) = (prompt(&workload(Shape::Prefix, 1), 0), prompt(&workload(Shape::Prefix, 1), 1));
        let (one, other): (Vec<_>, Vec<_>) = (one.split(' ').collect(), other.split(' ').collect());
        assert_eq!((one.len(), other.len()), (930, 930));
        assert_eq!(one[..900], other[..900]);
        assert_ne!(one[900..], other[900..]);
    }

    #[test]
    fn what_a_run_shares_no_other_run_does() {
        let workload = workload(Shape::Prefix, 1);
        let beginning =
            |first| workload.ask(first, 0).unwrap().prompt.split(' ').take(5).map(str::to_owned).collect::<Vec<_>>();
        assert_ne!(beginning(0), beginning(1 << 32));
    }

    #[test]
    fn listed_requests_are_asked_in_their_order_and_then_again() {
        let lines = "{\"prompt\": \"a\", \"output_tokens\": 3}\n{\"prompt_tokens\": 5, \"output_tokens\": 4}\n";
        let listed = Listed::parse(lines, "x".as_ref()).unwrap();
        let workload = Workload { asks: Asks::Listed(listed.into()), ..workload(TWENTY, 1) };
        let asks: Vec<Ask> = (0..4).map(|place| workload.ask(7, place).unwrap()).collect();
        assert_eq!((asks[0].prompt.as_str(), asks[0].output_tokens), ("a", 3));
        assert_eq!((asks[1].prompt.split(' ').count(), asks[1].output_tokens), (5, 4));
        assert_eq!((asks[2].prompt.as_str(), asks[3].output_tokens), ("a", 4));
        assert_ne!(asks[1].prompt, asks[3].prompt, "a prefix cache must not know it");
    }
}
