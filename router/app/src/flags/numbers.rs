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

/// GiB as bytes.
pub fn gibibytes(text: &str) -> Result<u64, String> {
    const GIB: f64 = (1_u64 << 30) as f64;
    const MOST: f64 = 65_536.0;
    let number: f64 = text.parse().map_err(|_| "is not a number".to_owned())?;
    if (0.0..=MOST).contains(&number) { Ok((number * GIB) as u64) } else { Err(format!("is not from 0 to {MOST}")) }
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
    fn gibibytes_may_have_a_fraction() {
        assert_eq!((gibibytes("4"), gibibytes("0.5"), gibibytes("0")), (Ok(4 << 30), Ok(1 << 29), Ok(0)));
        for text in ["", "-1", "nan", "inf", "4GiB"] {
            assert!(gibibytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for text in ["", "k", "-1", "-1k", "8kk", "nank", "5000000k", "8g"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
