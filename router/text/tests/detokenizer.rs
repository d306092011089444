//! Text that grows token by token is the text of the whole.

mod tokenizers;

use std::sync::Arc;

use headrace_text::{Detokenizer, SpecialTokens, Tokenizer};
use proptest::prelude::*;
use tokenizers::{FIRST_BYTE, byte_fallback, byte_fallback_through_the_window, byte_level, metaspace, word_piece};

fn pushes(tokenizer: &Arc<Tokenizer>, specials: SpecialTokens, ids: &[u32]) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(tokenizer.clone(), specials);
    let mut texts: Vec<String> = ids.iter().map(|&id| detokenizer.push(id)).collect();
    texts.push(detokenizer.finish());
    texts
}

fn shown(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> String {
    pushes(tokenizer, SpecialTokens::Show, ids).concat()
}

/// Equal to `whole`, but for a last character that never became complete.
fn assert_whole(text: &str, whole: &str) -> Result<(), TestCaseError> {
    let complete = whole.strip_suffix(char::REPLACEMENT_CHARACTER).unwrap_or(whole);
    prop_assert!(text == whole || text == complete, "{:?} is not {:?}", text, whole);
    Ok(())
}

/// U+FFFD itself is a character like any other: it is not taken for one that is incomplete.
#[test]
fn a_replacement_character_that_was_written_is_text() {
    for tokenizer in [byte_level(), byte_fallback(), byte_fallback_through_the_window()] {
        for text in ["\u{FFFD}", "hello \u{FFFD}", "\u{FFFD}\u{FFFD} hello"] {
            let ids = tokenizer.encode(text, false).expect("encodes").ids;
            assert_eq!(shown(&tokenizer, &ids), text);
        }
    }
}

proptest! {
    /// Any ids, also ones that are no characters, special, or outside the vocabulary.
    #[test]
    fn byte_level_pushes_equal_the_decoded_whole(
        ids in prop::collection::vec(prop_oneof![0u32..265, Just(259)], 0..60),
        skip in any::<bool>(),
    ) {
        let tokenizer = byte_level();
        let specials = if skip { SpecialTokens::Skip } else { SpecialTokens::Show };
        let text = pushes(&tokenizer, specials, &ids).concat();
        assert_whole(&text, &tokenizer.decode(&ids, skip).expect("decodes"))?;
    }

    #[test]
    fn byte_level_gives_any_text_back(text in any::<String>()) {
        let tokenizer = byte_level();
        let ids = tokenizer.encode(&text, false).expect("encodes").ids;
        prop_assert_eq!(shown(&tokenizer, &ids), text);
    }

    #[test]
    fn byte_fallback_gives_any_text_back(text in "(?s)[a-z .,]{0,20}.{0,10}[helo ]{0,20}") {
        // The alphabet has neither a literal ▁ nor the special tokens' text.
        prop_assume!(!text.contains('▁') && !text.contains('<'));
        for tokenizer in [byte_fallback(), byte_fallback_through_the_window()] {
            let ids = tokenizer.encode(&text, false).expect("encodes").ids;
            prop_assert_eq!(&shown(&tokenizer, &ids), &text);
        }
    }

    /// Without byte tokens, whose runs the whole decodes all or nothing.
    #[test]
    fn byte_fallback_pushes_equal_the_decoded_whole(
        ids in prop::collection::vec(prop_oneof![0u32..3, FIRST_BYTE + 256..280], 0..30),
        skip in any::<bool>(),
    ) {
        let specials = if skip { SpecialTokens::Skip } else { SpecialTokens::Show };
        for tokenizer in [byte_fallback(), byte_fallback_through_the_window()] {
            let text = pushes(&tokenizer, specials, &ids).concat();
            prop_assert_eq!(text, tokenizer.decode(&ids, skip).expect("decodes"));
        }
    }

    #[test]
    fn metaspace_and_word_piece_pushes_equal_the_decoded_whole(
        ids in prop::collection::vec(0u32..11, 0..30),
        skip in any::<bool>(),
    ) {
        let specials = if skip { SpecialTokens::Skip } else { SpecialTokens::Show };
        for tokenizer in [metaspace(), word_piece()] {
            let text = pushes(&tokenizer, specials, &ids).concat();
            prop_assert_eq!(text, tokenizer.decode(&ids, skip).expect("decodes"));
        }
    }
}

#[test]
fn a_character_over_several_tokens_comes_with_its_last_one() {
    for tokenizer in [byte_level(), byte_fallback(), byte_fallback_through_the_window()] {
        let ids = tokenizer.encode("a🦀", false).expect("encodes").ids;
        let crab: Vec<u32> = ids[ids.len() - 4..].to_vec();
        assert_eq!(pushes(&tokenizer, SpecialTokens::Show, &crab), ["", "", "", "🦀", ""]);
    }
}

#[test]
fn an_answer_that_ends_inside_a_character_keeps_its_complete_ones() {
    for tokenizer in [byte_level(), byte_fallback(), byte_fallback_through_the_window()] {
        let ids = tokenizer.encode("hello é🦀", false).expect("encodes").ids;
        assert_eq!(shown(&tokenizer, &ids[..ids.len() - 1]), "hello é");
    }
}

#[test]
fn bytes_that_never_become_a_character_are_not_held_forever() {
    let broken = vec![FIRST_BYTE + 0xC3; 100];
    for tokenizer in [byte_fallback(), byte_fallback_through_the_window()] {
        let texts = pushes(&tokenizer, SpecialTokens::Show, &broken);
        assert!(texts[..16].concat().contains(char::REPLACEMENT_CHARACTER), "{texts:?}");
    }
}

#[test]
fn special_tokens_are_shown_or_skipped() {
    let tokenizer = byte_level();
    let ids = [tokenizer.encode("hell", false).expect("encodes").ids, vec![259]].concat();
    assert_eq!(pushes(&tokenizer, SpecialTokens::Show, &ids).concat(), "hell<|end|>");
    assert_eq!(pushes(&tokenizer, SpecialTokens::Skip, &ids).concat(), "hell");
}

#[test]
fn a_skipped_special_token_does_not_break_the_character_around_it() {
    let tokenizer = byte_level();
    let halves = tokenizer.encode("é", false).expect("encodes").ids;
    let ids = [halves[0], 259, halves[1]];
    assert_eq!(pushes(&tokenizer, SpecialTokens::Skip, &ids).concat(), "é");
}

#[test]
fn only_the_first_word_loses_its_leading_space() {
    let hello = tokenizers::metaspace();
    assert_eq!(pushes(&hello, SpecialTokens::Show, &[1, 2, 4]), ["Hello", " world", "!", ""]);
    let tokenizer = byte_fallback();
    let ids = tokenizer.encode("he hello", false).expect("encodes").ids;
    assert_eq!(pushes(&tokenizer, SpecialTokens::Show, &ids), ["he", " he", "llo", ""]);
}
