//! Token ids of a workload: equal where requests share a prefix, and nowhere else.

use std::collections::HashMap;

use headrace_scheduler::{TokenId, Tokens};

use crate::workload::{Arrival, Workload};

/// Ends an answer.
pub(crate) const END_OF_SEQUENCE: TokenId = 0;

/// Gives every request its ids, from a number that only grows.
pub(crate) struct TokenIds {
    /// The first id of each shared prefix.
    prefixes: HashMap<String, u64>,
    next: u64,
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
        Self { prefixes, next, longest }
    }

    /// The ids of a prompt, and the number from which its answer's ids count.
    pub fn prompt(&mut self, arrival: &Arrival) -> (Vec<TokenId>, u64) {
        let length = u64::from(arrival.prompt.0).min(u64::from(self.longest.0) + 1);
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
        let prompts: Vec<Vec<TokenId>> = arrivals.iter().map(|arrival| ids.prompt(arrival).0).collect();
        assert_eq!(prompts.iter().map(Vec::len).collect::<Vec<_>>(), [10, 8, 9, 10, 5]);
        assert_eq!(prompts[0][..4], prompts[2][..4]);
        assert_eq!(prompts[0][..6], prompts[3][..6]);
        let distinct: HashSet<TokenId> = prompts.concat().into_iter().collect();
        assert_eq!(distinct.len(), 10 + 8 + 9 + 10 + 5 - 4 - 6);
        assert!(!distinct.contains(&END_OF_SEQUENCE));
    }

    #[test]
    fn a_prompt_that_will_be_refused_gets_just_enough_ids_for_it() {
        let long = arrival(u32::MAX, None);
        let mut ids = TokenIds::new(&Workload::new(vec![long.clone()]), Tokens(100));
        assert_eq!(ids.prompt(&long).0.len(), 101);
    }
}
