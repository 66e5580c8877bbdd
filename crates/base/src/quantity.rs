//! Reading a number with a unit from text that a person wrote.

use std::fmt;

/// A text that is no quantity: says what was read, and what would have been right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuantityError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for ParseQuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not {}", self.text, self.expected)
    }
}

impl std::error::Error for ParseQuantityError {}

/// Reads a non-negative decimal number followed by one of `units` (name, factor; names compare without case).
pub(crate) fn parse_quantity(
    text: &str,
    units: &[(&str, u64)],
    expected: &'static str,
) -> Result<u64, ParseQuantityError> {
    let error = || ParseQuantityError { text: text.to_owned(), expected };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..split], trimmed[split..].trim());
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(error)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor).ok_or_else(error);
    }
    let value = number.parse::<f64>().map_err(|_| error())? * *factor as f64;
    if value < u64::MAX as f64 { Ok(value.round() as u64) } else { Err(error()) }
}
