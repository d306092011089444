//! Counts as vLLM's users write them: `8k`, `8K`, `25.6k`.

/// Tokens; k and m are thousands and millions, K and M powers of 1024.
pub fn tokens(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M']);
    let unit = match &text[digits.len()..] {
        "" => return text.parse().map_err(|error: std::num::ParseIntError| error.to_string()),
        "k" => 1e3,
        "K" => 1024.0,
        "m" => 1e6,
        "M" => 1024.0 * 1024.0,
        _ => return Err("has more than one unit".to_owned()),
    };
    let number: f64 = digits.parse().map_err(|_| format!("`{digits}` is not a number"))?;
    let tokens = (number * unit).round();
    if (0.0..=f64::from(u32::MAX)).contains(&tokens) { Ok(tokens as u32) } else { Err("is out of range".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_decimal_in_small_letters_and_binary_in_capitals() {
        let good =
            [("8000", 8000), ("8k", 8000), ("8K", 8192), ("25.6k", 25_600), ("1m", 1_000_000), ("1M", 1_048_576)];
        for (text, count) in good {
            assert_eq!(tokens(text), Ok(count), "{text}");
        }
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for text in ["", "k", "-1", "-1k", "8kk", "nank", "5000000k", "8g"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
