//! A whole number within bounds that are part of its type: read from JSON and from headers with the same words.

use std::fmt;
use std::str::FromStr;

use crate::numbers::WholeRange;

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Within<const MIN: i64, const MAX: i64>(i64);

impl<const MIN: i64, const MAX: i64> Within<MIN, MAX> {
    pub fn get(self) -> i64 {
        self.0
    }
}

impl<const MIN: i64, const MAX: i64> WholeRange for Within<MIN, MAX> {
    const MIN: Self = Self(MIN);
    const MAX: Self = Self(MAX);
}

/// It is out of bounds, or no whole number.
#[derive(Debug)]
pub(crate) struct Outside;

impl<const MIN: i64, const MAX: i64> TryFrom<i64> for Within<MIN, MAX> {
    type Error = Outside;

    fn try_from(number: i64) -> Result<Self, Outside> {
        if (MIN..=MAX).contains(&number) { Ok(Self(number)) } else { Err(Outside) }
    }
}

impl<const MIN: i64, const MAX: i64> TryFrom<u64> for Within<MIN, MAX> {
    type Error = Outside;

    fn try_from(number: u64) -> Result<Self, Outside> {
        i64::try_from(number).map_err(|_| Outside)?.try_into()
    }
}

impl<const MIN: i64, const MAX: i64> FromStr for Within<MIN, MAX> {
    type Err = Outside;

    fn from_str(text: &str) -> Result<Self, Outside> {
        text.parse::<i64>().map_err(|_| Outside)?.try_into()
    }
}

impl<const MIN: i64, const MAX: i64> fmt::Display for Within<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
