//! Python's string operations that Rust's differ from.

/// Python's white space: Rust's, and the four separators of ASCII.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Which ends `strip` and its kin work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    Both,
    Start,
    End,
}

/// `strip`, `lstrip`, `rstrip`: white space, or any of `chars`.
pub fn strip<'a>(text: &'a str, chars: Option<&str>, ends: Ends) -> &'a str {
    let strips = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if ends == Ends::End { text } else { text.trim_start_matches(strips) };
    if ends == Ends::Start { text } else { text.trim_end_matches(strips) }
}

/// `splitlines`: at every line end that Unicode knows, without an empty last line.
pub fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !is_line_end(c) {
            continue;
        }
        let mut end = at + c.len_utf8();
        if c == '\r' && chars.next_if(|&(_, next)| next == '\n').is_some() {
            end += 1;
        }
        lines.push(&text[start..if keep_ends { end } else { at }]);
        start = end;
    }
    if start < text.len() {
        lines.push(&text[start..]);
    }
    lines
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// `split`: at white space without empty parts, or at `separator`; at most `limit` cuts.
pub fn split(text: &str, separator: Option<&str>, limit: Option<usize>) -> Vec<String> {
    let Some(separator) = separator else { return split_space(text, limit) };
    let parts: Vec<&str> = match limit {
        Some(limit) => text.splitn(limit.saturating_add(1), separator).collect(),
        None => text.split(separator).collect(),
    };
    parts.into_iter().map(str::to_owned).collect()
}

fn split_space(text: &str, limit: Option<usize>) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = strip(text, None, Ends::Start);
    while !rest.is_empty() {
        if limit.is_some_and(|limit| parts.len() >= limit) {
            parts.push(strip(rest, None, Ends::End).to_owned());
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        parts.push(rest[..end].to_owned());
        rest = strip(&rest[end..], None, Ends::Start);
    }
    parts
}

/// `rsplit`: as [`split`], cutting from the end.
pub fn rsplit(text: &str, separator: Option<&str>, limit: Option<usize>) -> Vec<String> {
    let Some(separator) = separator else { return rsplit_space(text, limit) };
    let mut parts: Vec<String> = match limit {
        Some(limit) => text.rsplitn(limit.saturating_add(1), separator).map(str::to_owned).collect(),
        None => text.rsplit(separator).map(str::to_owned).collect(),
    };
    parts.reverse();
    parts
}

fn rsplit_space(text: &str, limit: Option<usize>) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = strip(text, None, Ends::End);
    while !rest.is_empty() {
        if limit.is_some_and(|limit| parts.len() >= limit) {
            parts.push(rest.to_owned());
            break;
        }
        let start = rest.char_indices().rev().find(|&(_, c)| is_space(c)).map_or(0, |(at, c)| at + c.len_utf8());
        parts.push(rest[start..].to_owned());
        rest = strip(&rest[..start], None, Ends::End);
    }
    parts.reverse();
    parts
}

/// The method `title`: a letter after anything but a letter is upper case, all others are lower case.
pub fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        let cased = c.is_lowercase() || c.is_uppercase();
        if inside {
            out.extend(c.to_lowercase())
        } else {
            push_title(&mut out, c)
        }
        inside = cased;
    }
    out
}

/// The filter `title`: the first letter of each word, as white space, `-`, `(`, `{`, `[` and `<` part words.
pub fn title_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<') {
            inside = false;
            out.push(c);
            continue;
        }
        if inside {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        inside = true;
    }
    out
}

/// `capitalize`: the first character in upper case, the others in lower case.
pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::with_capacity(text.len());
    if let Some(first) = chars.next() {
        push_title(&mut out, first);
    }
    out.push_str(&chars.as_str().to_lowercase());
    out
}

/// A character as a title begins with it: upper case, but for the four letters that are two in one.
fn push_title(out: &mut String, c: char) {
    match c {
        'Ǆ'..='ǆ' => out.push('ǅ'),
        'Ǉ'..='ǉ' => out.push('ǈ'),
        'Ǌ'..='ǌ' => out.push('ǋ'),
        'Ǳ'..='ǳ' => out.push('ǲ'),
        c => out.extend(c.to_uppercase()),
    }
}

/// `swapcase`.
pub fn swap_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_uppercase() { out.extend(c.to_lowercase()) } else { out.extend(c.to_uppercase()) }
    }
    out
}

/// `text` with the characters `& < > ' "` as HTML names them, as markupsafe does.
pub fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}
