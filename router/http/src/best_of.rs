//! `best_of`: of several generations the one whose tokens were likeliest on average is the answer.

use crate::collect::Answer;

/// The best answer and the others, in the order of their seeds. The first wins a tie.
pub(crate) fn pick(answers: Vec<Answer>) -> Option<(Answer, Vec<Answer>)> {
    let mut rest = answers;
    let best = best_index(&rest.iter().map(mean_logprob).collect::<Vec<_>>())?;
    let winner = rest.remove(best);
    Some((winner, rest))
}

/// The `n` best answers, best first; all of them, if there are no more, in the order of their seeds.
pub(crate) fn pick_several(answers: Vec<Answer>, n: usize) -> Vec<Answer> {
    if answers.len() <= n {
        return answers;
    }
    let mut rest = answers;
    let mut best = Vec::with_capacity(n);
    while best.len() < n
        && let Some((next, others)) = pick(rest)
    {
        best.push(next);
        rest = others;
    }
    best
}

/// Mean log-probability of the answer's tokens; of none, the worst there is.
fn mean_logprob(answer: &Answer) -> f32 {
    let sum: f32 = answer.tokens.iter().filter_map(|token| token.logprob).sum();
    if answer.tokens.is_empty() { f32::NEG_INFINITY } else { sum / answer.tokens.len() as f32 }
}

/// NaN never wins against a number.
fn best_index(means: &[f32]) -> Option<usize> {
    let better = |a: f32, b: f32| a > b || (b.is_nan() && !a.is_nan());
    (0..means.len()).reduce(|best, next| if better(means[next], means[best]) { next } else { best })
}

#[cfg(test)]
mod tests {
    use headrace_engine::{FinishReason, Finished, GeneratedToken, Timings};
    use headrace_scheduler::Tokens;

    use super::*;

    /// An answer of one token with this log-probability.
    fn answer(choice: u32, logprob: f32) -> Answer {
        let token = GeneratedToken { id: 0, text: "".into(), logprob: Some(logprob), special: false, top: vec![] };
        let finished = Finished {
            reason: FinishReason::Length,
            text: String::new(),
            generated: Tokens(1),
            cached: Tokens::ZERO,
            timings: Timings::default(),
        };
        Answer { choice, prompt_logprobs: vec![], tokens: vec![token], finished }
    }

    #[test]
    fn of_more_answers_than_are_wanted_the_best_come_best_first() {
        let picked = |n: usize| {
            let answers =
                [-3.0, -1.0, -2.0, -1.0].into_iter().zip(0..).map(|(logprob, choice)| answer(choice, logprob));
            pick_several(answers.collect(), n).iter().map(|answer| answer.choice).collect::<Vec<_>>()
        };
        assert_eq!(picked(3), [1, 3, 2]);
        assert_eq!(picked(4), [0, 1, 2, 3], "nothing is to be picked");
    }

    #[test]
    fn the_highest_mean_wins_the_first_of_equals_and_nan_never() {
        assert_eq!(best_index(&[-2.0, -1.0, -3.0]), Some(1));
        assert_eq!(best_index(&[-1.0, -1.0]), Some(0));
        assert_eq!(best_index(&[f32::NAN, f32::NEG_INFINITY]), Some(1));
        assert_eq!(best_index(&[-1.0, f32::NAN]), Some(0));
        assert_eq!(best_index(&[]), None);
    }
}
