//! `{% generation %}`: transformers' tag around what the assistant says. It marks tokens for training; for a prompt only
//! what is inside counts, and that names set there stay there, as in a `with` block. So the tag's name is replaced by
//! `with` before minijinja parses, and everything around the name stays: white space control above all.
//!
//! Strings are mended on the way: Python's escapes are not all minijinja's.

/// The template's text with `with` and `endwith` for `generation` and `endgeneration`, and with strings as minijinja reads
/// them.
pub fn replace(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag, after)) = next_tag(rest) {
        out.push_str(before);
        if tag.starts_with("{#") {
            out.push_str(tag)
        } else {
            mend_strings(&mut out, &renamed(tag))
        }
        rest = after;
        if name(tag) == Some("raw") {
            let end = end_of_raw(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

/// The text before the next tag (comment, expression or statement), the tag, and the text after it.
fn next_tag(source: &str) -> Option<(&str, &str, &str)> {
    let starts = source.match_indices('{').map(|(at, _)| at);
    let start = { starts }.find(|&at| matches!(source.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')))?;
    let tag = &source[start..];
    let length = match tag.as_bytes()[1] {
        b'#' => tag.find("#}").map_or(tag.len(), |at| at + 2),
        b'{' => end_of_code(tag, "}}"),
        _ => end_of_code(tag, "%}"),
    };
    Some((&source[..start], &tag[..length], &tag[length..]))
}

/// Where the code ends, strings in it not looked into.
fn end_of_code(tag: &str, end: &str) -> usize {
    let bytes = tag.as_bytes();
    let mut quote = None;
    let mut depth = 0usize;
    let mut at = 2;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            // `}}` may close dicts before it closes the expression.
            (None, _) if depth == 0 && bytes[at..].starts_with(end.as_bytes()) => return at + end.len(),
            (None, b'{') => depth += 1,
            (None, b'}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Name of a statement: the first word of `{% … %}`.
fn name(tag: &str) -> Option<&str> {
    let inside = tag.strip_prefix("{%")?.trim_start_matches(['-', '+']).trim_start();
    Some(inside.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default())
}

fn renamed(tag: &str) -> String {
    match name(tag) {
        Some(word @ "generation") => tag.replacen(word, "with", 1),
        Some(word @ "endgeneration") => tag.replacen(word, "endwith", 1),
        _ => tag.to_owned(),
    }
}

/// Escapes that only one of the two knows: `\/` is two characters in Python, `\a`, `\v` and `\U…` are one.
fn mend_strings(out: &mut String, tag: &str) {
    let mut quote = None;
    let mut chars = tag.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => mend_escape(out, &mut chars),
            (Some(open), c) if c == open => {
                quote = None;
                out.push(c);
            }
            (None, '"' | '\'') => {
                quote = Some(c);
                out.push(c);
            }
            (_, c) => out.push(c),
        }
    }
}

fn mend_escape(out: &mut String, chars: &mut std::str::Chars<'_>) {
    match chars.next() {
        Some('/') => out.push_str("\\\\/"),
        Some('a') => out.push_str("\\x07"),
        Some('v') => out.push_str("\\x0b"),
        Some('U') => {
            let rest = chars.as_str();
            let code = rest.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            match code.and_then(char::from_u32) {
                Some(c) => {
                    out.push(c);
                    *chars = rest[8..].chars();
                }
                None => out.push_str("\\U"),
            }
        }
        Some(c) => {
            out.push('\\');
            out.push(c);
        }
        None => out.push('\\'),
    }
}

/// How much of `source` is raw text.
fn end_of_raw(source: &str) -> usize {
    let ends = source.match_indices("{%").map(|(at, _)| at);
    { ends }.find(|&at| name(&source[at..]) == Some("endraw")).unwrap_or(source.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_becomes_a_with_block_and_keeps_its_white_space_control() {
        assert_eq!(replace("a {%- generation -%} b {%+endgeneration%} c"), "a {%- with -%} b {%+endwith%} c");
    }

    #[test]
    fn comments_strings_and_raw_text_stay_as_they_are() {
        for source in [
            "{# {% generation %} #}",
            "{{ '{% generation %}' }}",
            "{% set x = \"{% generation %}\" %}",
            "{% raw %}{% generation %}{% endraw %}",
            "{{ {'a': {'b': 1}}['a'] }} generation",
            "{% set generation = 1 %}",
        ] {
            assert_eq!(replace(source), source);
        }
    }

    #[test]
    fn a_tag_after_raw_text_or_an_expression_of_braces_is_found() {
        assert_eq!(replace("{% raw %}{{{% endraw %}{% generation %}"), "{% raw %}{{{% endraw %}{% with %}");
        assert_eq!(replace("{{ {'a': {}} }}{% generation %}"), "{{ {'a': {}} }}{% with %}");
    }

    #[test]
    fn escapes_of_python_become_those_of_minijinja() {
        assert_eq!(replace(r#"{{ "\/ \a \U0001F600 \n \" \\/" }} \/"#), "{{ \"\\\\/ \\x07 😀 \\n \\\" \\\\/\" }} \\/");
    }

    #[test]
    fn what_never_ends_is_left_to_the_parser() {
        for source in ["{% generation", "{{ 'x", "{# x", "{% raw %}x", "{", "{%"] {
            assert!(!replace(source).is_empty());
        }
    }
}
