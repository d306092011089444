//! The words of a command line before clap sees them: spellings that other servers allow, brought to one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// vLLM's short names of two letters, which clap would read as two flags.
const LONG_NAMES: &[(&str, &str)] = &[
    ("-tp", "--tensor-parallel-size"),
    ("-pp", "--pipeline-parallel-size"),
    ("-dp", "--data-parallel-size"),
    ("-dcp", "--decode-context-parallel-size"),
    ("-ep", "--enable-expert-parallel"),
    ("-cc", "--compilation-config"),
    ("-ac", "--attention-config"),
    ("-sc", "--speculative-config"),
];

/// `--max_num_seqs=8` becomes `--max-num-seqs=8`, and `-tp` its long name. What follows `--` is left alone.
pub fn spell(words: Vec<OsString>) -> Vec<OsString> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let each = words.into_iter().enumerate();
    each.map(|(place, word)| if place > 0 && place < end { one(word) } else { word }).collect()
}

fn one(word: OsString) -> OsString {
    if let Some((_, long)) = LONG_NAMES.iter().find(|(short, _)| word == *short) {
        return (*long).into();
    }
    let bytes = word.as_bytes();
    if !bytes.starts_with(b"--") {
        return word;
    }
    let name = bytes.iter().position(|&byte| byte == b'=').unwrap_or(bytes.len());
    let dashes = bytes[..name].iter().map(|&byte| if byte == b'_' { b'-' } else { byte });
    OsString::from_vec(dashes.chain(bytes[name..].iter().copied()).collect())
}

/// Whether one of the words gives the flag by this name, as `--name`, `--name=value`, `-n` or `-nVALUE`.
pub fn name(word: &OsStr, long: &str) -> bool {
    let word = word.as_bytes();
    word.strip_prefix(b"--")
        .and_then(|word| word.strip_prefix(long.as_bytes()))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
}

/// The same for a short name.
pub fn short_name(word: &OsStr, short: char) -> bool {
    let word = word.to_string_lossy();
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(short))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(line: &str) -> String {
        let words = spell(line.split_whitespace().map(Into::into).collect());
        words.iter().map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn underscores_of_a_flags_name_are_dashes_and_those_of_a_value_stay() {
        assert_eq!(
            spelled("headrace serve --max_num_seqs=a_b --model_id c_d"),
            "headrace serve --max-num-seqs=a_b --model-id c_d"
        );
    }

    #[test]
    fn a_short_name_of_two_letters_is_its_long_one() {
        assert_eq!(spelled("headrace serve -tp 2"), "headrace serve --tensor-parallel-size 2");
    }

    #[test]
    fn what_follows_two_dashes_and_the_programs_own_name_are_left_alone() {
        assert_eq!(spelled("--my_path serve -- --a_b -tp"), "--my_path serve -- --a_b -tp");
    }
}
