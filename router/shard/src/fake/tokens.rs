//! Which token follows a history: a pure function of every token in it.
//!
//! A history is folded into 64 bits, token by token; from that *digest* come the next token and every log-probability.
//! A lost, doubled, swapped or foreign token anywhere in the history changes all that follows.

use std::sync::Arc;

use headrace_scheduler::TokenId;

/// How a digest becomes a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRule {
    /// The tokens to answer with, at least one, each below the vocabulary's size. `None`: the whole vocabulary.
    pub choices: Option<Arc<[TokenId]>>,
    /// `None`: end-of-sequence comes up only if `choices` hold it.
    pub eos: Option<EosRule>,
}

/// One answer token in `one_in`, as the digest decides, is `token`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EosRule {
    pub token: TokenId,
    /// 0: never.
    pub one_in: u32,
}

/// The digest of no tokens.
pub(super) const EMPTY: u64 = 0x243f_6a88_85a3_08d3;

/// The digest of a history that goes on with `token`.
pub(super) fn fold(digest: u64, token: TokenId) -> u64 {
    mix(digest.wrapping_add(u64::from(token)).wrapping_add(0x9e37_79b9_7f4a_7c15))
}

impl TokenRule {
    /// The token that follows a history with this digest.
    pub(super) fn next(&self, digest: u64, vocab_size: u32) -> TokenId {
        if let Some(eos) = self.eos
            && eos.one_in > 0
            && mix(digest).is_multiple_of(u64::from(eos.one_in))
        {
            return eos.token;
        }
        match &self.choices {
            Some(choices) => choices.get(scale(digest, choices.len() as u64) as usize).copied().unwrap_or(0),
            None => scale(digest, u64::from(vocab_size)) as TokenId,
        }
    }

    /// Tokens and log-probabilities that follow `history`, without end.
    pub(super) fn continuation(&self, history: &[TokenId], vocab_size: u32) -> impl Iterator<Item = (TokenId, f32)> {
        let mut digest = history.iter().fold(EMPTY, |digest, &token| fold(digest, token));
        std::iter::repeat_with(move || {
            let token = self.next(digest, vocab_size);
            let logprob = logprob(digest);
            digest = fold(digest, token);
            (token, logprob)
        })
    }
}

/// The log-probability of the token that follows a history with this digest: in (−4, 0].
pub(super) fn logprob(digest: u64) -> f32 {
    -(scale(digest.rotate_left(32), 4096) as f32) / 1024.0
}

/// The `n` likeliest tokens: the sampled one, then its neighbours in the vocabulary, a quarter less likely each.
pub(super) fn top(token: TokenId, logprob: f32, n: u32, vocab_size: u32) -> Vec<(TokenId, f32)> {
    let neighbour = |i: u32| ((u64::from(token) + u64::from(i)) % u64::from(vocab_size)) as TokenId;
    (0..n.min(vocab_size)).map(|i| (neighbour(i), logprob - 0.25 * i as f32)).collect()
}

/// What a prompt's positions report; the first has no history to be likely after.
pub(super) fn prompt_logprobs(prompt: &[TokenId]) -> Vec<f32> {
    let mut digest = EMPTY;
    let report = |(position, &token): (usize, &TokenId)| {
        digest = fold(digest, token);
        position_logprob(position, digest)
    };
    prompt.iter().enumerate().map(report).collect()
}

/// What one position reports, given the digest of the history up to and with it.
pub(super) fn position_logprob(position: usize, digest: u64) -> f32 {
    if position == 0 { f32::NAN } else { logprob(!digest) }
}

/// `0 … below`, evenly, from the digest's upper half.
fn scale(digest: u64, below: u64) -> u64 {
    ((digest >> 32) * below) >> 32
}

/// A bijection that spreads every input bit over all output bits.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(history: &[TokenId]) -> u64 {
        history.iter().fold(EMPTY, |digest, &token| fold(digest, token))
    }

    proptest! {
        /// The bugs that tests must see: a token lost, doubled, replaced, or two swapped.
        #[test]
        fn any_change_of_the_history_changes_its_digest(
            history in prop::collection::vec(0u32..50, 2..40),
            at in any::<prop::sample::Index>(),
            other in 0u32..50,
        ) {
            let at = at.index(history.len() - 1);
            let (mut lost, mut doubled, mut replaced, mut swapped) =
                (history.clone(), history.clone(), history.clone(), history.clone());
            lost.remove(at);
            doubled.insert(at, history[at]);
            replaced[at] = other;
            swapped.swap(at, at + 1);
            for changed in [lost, doubled, replaced, swapped] {
                prop_assert_eq!(digest(&changed) == digest(&history), changed == history);
            }
        }

        #[test]
        fn tokens_stay_in_the_vocabulary_and_logprobs_below_zero(history in prop::collection::vec(0u32..7, 1..20)) {
            for (token, logprob) in TokenRule::default().continuation(&history, 7).take(50) {
                prop_assert!(token < 7 && logprob <= 0.0);
            }
        }
    }

    #[test]
    fn only_the_chosen_tokens_come_up_and_each_does() {
        let rule = TokenRule { choices: Some([5, 9].into()), eos: None };
        let tokens: Vec<_> = rule.continuation(&[1], 100).take(50).map(|(token, _)| token).collect();
        assert!(tokens.iter().all(|token| [5, 9].contains(token)));
        assert!(tokens.contains(&5) && tokens.contains(&9));
    }

    #[test]
    fn end_of_sequence_comes_up_about_as_often_as_the_rule_says() {
        let rule = TokenRule { choices: Some([5].into()), eos: Some(EosRule { token: 2, one_in: 10 }) };
        let ends = rule.continuation(&[1], 100).take(10_000).filter(|(token, _)| *token == 2).count();
        assert!((800..1200).contains(&ends), "{ends} of 10,000");
    }

    #[test]
    fn the_likeliest_tokens_are_distinct_and_start_with_the_sampled_one() {
        assert_eq!(top(3, -1.0, 2, 4), [(3, -1.0), (0, -1.25)]);
        assert_eq!(top(3, -1.0, 9, 4).len(), 4);
    }
}
