//! Twins of characters: what a user typed as part of a special token's text is rendered through them.

/// A stand-in for a character of a special token's text.
pub fn is_twin(c: char) -> bool {
    ('\u{fdd0}'..='\u{fdef}').contains(&c)
}
