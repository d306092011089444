//! `strftime_now`: the time as C's `strftime` writes it in English, for a time that knows no zone.

use jiff::civil::DateTime;
use minijinja::{Error, ErrorKind};

/// The time in `format`.
pub fn format(now: &DateTime, format: &str) -> Result<String, Error> {
    let made = jiff::fmt::strtime::format(in_english(format), *now);
    made.map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}")))
}

/// What depends on a language or a zone, spelt out.
fn in_english(format: &str) -> String {
    let mut out = String::with_capacity(format.len());
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('c') => out.push_str("%a %b %e %H:%M:%S %Y"),
            Some('x') => out.push_str("%m/%d/%y"),
            Some('X') => out.push_str("%H:%M:%S"),
            Some('z' | 'Z') => {}
            Some(c) => {
                out.push('%');
                out.push(c);
            }
            None => out.push_str("%%"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> String {
        format(&jiff::civil::date(2031, 2, 3).at(4, 5, 6, 0), text).expect("a good format")
    }

    #[test]
    fn names_are_english_and_numbers_have_two_digits() {
        assert_eq!(at("%A %d %B %Y, %b %y"), "Monday 03 February 2031, Feb 31");
    }

    #[test]
    fn formats_of_a_language_are_those_of_c() {
        assert_eq!(at("%c|%x|%X"), "Mon Feb  3 04:05:06 2031|02/03/31|04:05:06");
    }

    #[test]
    fn a_zone_is_unknown_and_a_lone_sign_is_itself() {
        assert_eq!(at("%H%Z%z%"), "04%");
    }
}
