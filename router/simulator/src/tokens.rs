//! Token ids of a workload: equal where requests share a prefix, and nowhere else.

use std::collections::HashMap;

use headrace_scheduler::{TokenId, Tokens};

use crate::pretend_shard::AnswerTokens;
use crate::workload::{Arrival, NamedBlocks, Workload};

/// Ends an answer.
pub(crate) const END_OF_SEQUENCE: TokenId = 0;

/// Gives every request its ids, from a number that only grows.
pub(crate) struct TokenIds {
    /// The first id of each shared prefix.
    prefixes: HashMap<String, u64>,
    next: u64,
    /// The first id of each block that a trace names.
    named: HashMap<u64, u64>,
    /// A request is refused for its length if it has more tokens, so no more ids are needed.
    longest: Tokens,
}

impl TokenIds {
    pub fn new(workload: &Workload, longest: Tokens) -> Self {
        let mut lengths: HashMap<&str, u64> = HashMap::new();
        let mut names = Vec::new();
        for prefix in workload.arrivals().iter().filter_map(|arrival| arrival.prefix.as_ref()) {
            let length = lengths.entry(&prefix.name).or_insert_with(|| {
                names.push(&prefix.name);
                0
            });
            *length = u64::from(prefix.tokens.0).max(*length);
        }
        let mut next = 0;
        let prefixes = names.into_iter().map(|name| {
            let first = next;
            next += lengths[name.as_str()];
            (name.clone(), first)
        });
        let prefixes = prefixes.collect();
        Self { prefixes, next, named: HashMap::new(), longest }
    }

    /// The ids of a prompt and of its answer.
    pub fn of(&mut self, arrival: &Arrival) -> (Vec<TokenId>, AnswerTokens) {
        match &arrival.blocks {
            Some(blocks) => self.named(arrival, blocks),
            None => {
                let (prompt, first) = self.counted(arrival);
                (prompt, AnswerTokens::From(first))
            }
        }
    }

    fn named(&mut self, arrival: &Arrival, blocks: &NamedBlocks) -> (Vec<TokenId>, AnswerTokens) {
        let size = blocks.size.0;
        let prompt = self.length(arrival) as u32;
        let whole = prompt.saturating_add(arrival.output.0);
        let mut ids = Vec::with_capacity(whole as usize);
        for block in 0..whole.div_ceil(size) {
            let number = blocks.numbers.get(&block).copied();
            let known = number.and_then(|number| self.named.get(&number).copied());
            let first = known.unwrap_or(self.next);
            if known.is_none() {
                self.next += u64::from(size);
                number.map(|number| self.named.insert(number, first));
            }
            let tokens = size.min(whole - block * size);
            ids.extend((first..first + u64::from(tokens)).map(id));
        }
        let answer = ids.split_off(prompt as usize);
        (ids, AnswerTokens::These(answer))
    }

    fn length(&self, arrival: &Arrival) -> u64 {
        u64::from(arrival.prompt.0).min(u64::from(self.longest.0) + 1)
    }

    /// The ids of a prompt, and the number from which its answer's ids count.
    fn counted(&mut self, arrival: &Arrival) -> (Vec<TokenId>, u64) {
        let length = self.length(arrival);
        let prefix = arrival.prefix.as_ref().map(|prefix| (self.prefixes[&prefix.name], prefix.tokens));
        let (shared, tokens) = prefix.map_or((0, 0), |(first, tokens)| (first, u64::from(tokens.0).min(length)));
        let own = self.next;
        let answer = own + (length - tokens);
        self.next = answer + u64::from(arrival.output.0);
        let numbers = (shared..shared + tokens).chain(own..answer);
        (numbers.map(id).collect(), answer)
    }
}

/// Numbers become ids that never are the end of a sequence; they repeat after 4 billion.
pub(crate) fn id(number: u64) -> TokenId {
    1 + (number % u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use headrace_scheduler::Micros;

    use super::*;
    use crate::workload::Prefix;

    fn arrival(prompt: u32, prefix: Option<(&str, u32)>) -> Arrival {
        let prefix = prefix.map(|(name, tokens)| Prefix { name: name.to_owned(), tokens: Tokens(tokens) });
        Arrival { prefix, ..Arrival::new(Micros(0), Tokens(prompt), Tokens(5)) }
    }

    #[test]
    fn requests_share_the_ids_of_a_prefix_and_nothing_else() {
        let arrivals = [
            arrival(10, Some(("a", 6))),
            arrival(8, Some(("b", 3))),
            arrival(9, Some(("a", 4))),
            arrival(10, Some(("a", 6))),
            arrival(5, None),
        ];
        let mut ids = TokenIds::new(&Workload::new(arrivals.to_vec()), Tokens(100));
        let prompts: Vec<Vec<TokenId>> = arrivals.iter().map(|arrival| ids.of(arrival).0).collect();
        assert_eq!(prompts.iter().map(Vec::len).collect::<Vec<_>>(), [10, 8, 9, 10, 5]);
        assert_eq!(prompts[0][..4], prompts[2][..4]);
        assert_eq!(prompts[0][..6], prompts[3][..6]);
        let distinct: HashSet<TokenId> = prompts.concat().into_iter().collect();
        assert_eq!(distinct.len(), 10 + 8 + 9 + 10 + 5 - 4 - 6);
        assert!(!distinct.contains(&END_OF_SEQUENCE));
    }

    #[test]
    fn blocks_of_equal_numbers_have_equal_ids_in_prompts_and_answers() {
        let named = |numbers: &[(u32, u64)]| {
            let numbers = numbers.iter().copied().collect();
            let blocks = NamedBlocks { size: Tokens(4), numbers, root: 0, reads_cache: true };
            Arrival { blocks: Some(blocks), ..arrival(6, None) }
        };
        let (first, second) = (named(&[(0, 7), (1, 8)]), named(&[(0, 7)]));
        let mut ids = TokenIds::new(&Workload::new(Vec::new()), Tokens(100));
        let [first, second] = [first, second].map(|arrival| match ids.of(&arrival) {
            (prompt, AnswerTokens::These(answer)) => [prompt, answer].concat(),
            _ => panic!("blocks are named"),
        });
        assert_eq!((first.len(), second.len()), (11, 11));
        assert_eq!(first[..4], second[..4]);
        let distinct: HashSet<TokenId> = first.into_iter().chain(second).collect();
        assert_eq!(distinct.len(), 11 + 11 - 4);
    }

    #[test]
    fn a_prompt_that_will_be_refused_gets_just_enough_ids_for_it() {
        let long = arrival(u32::MAX, None);
        let mut ids = TokenIds::new(&Workload::new(vec![long.clone()]), Tokens(100));
        assert_eq!(ids.of(&long).0.len(), 101);
    }
}
