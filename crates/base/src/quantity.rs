//! Reads a number with a unit from text written by people.

use std::fmt;

/// Error for a text without a quantity: shows the text and the expected form.
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

/// Reads a non-negative decimal number and one of `units` (name, factor; names compare without case).
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

/// Units for writing sizes, if exact.
const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];
/// Units for writing times, if exact.
const TIMES: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Writes the value of a setting as people do, so that reading gives the same value again. Whole bytes
/// (`419430400B`) and times (`100000us`) get the unit in which they are short and exact (`400MiB`, `100ms`).
/// Shares lose rounding errors (`7.000000000000001%`). All other values stay unchanged.
pub fn written(value: &str) -> String {
    let split = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(split);
    let exact = match unit {
        "%" => percent(number),
        "B" => number.parse().ok().and_then(|number| shortest(number, &SIZES)),
        _ => match TIMES.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => number
                .parse::<u64>()
                .ok()
                .and_then(|number| number.checked_mul(*factor))
                .and_then(|time| shortest(time, &TIMES)),
            None => None,
        },
    };
    exact.unwrap_or_else(|| value.to_owned())
}

/// First shortest form; none for zero, for which any unit would do.
fn shortest(quantity: u64, units: &[(&str, u64)]) -> Option<String> {
    let exact = units.iter().filter(|(_, factor)| quantity > 0 && quantity.is_multiple_of(*factor));
    exact
        .map(|(name, factor)| (quantity / factor, name))
        .min_by_key(|(count, _)| *count)
        .map(|(count, name)| format!("{count}{name}"))
}

/// A share in per cent, rounded if rounding removes only the error of the arithmetic.
fn percent(number: &str) -> Option<String> {
    let value: f64 = number.parse().ok()?;
    let text = format!("{value:.10}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let rounded: f64 = text.parse().ok()?;
    ((rounded - value).abs() <= value * 1e-12).then(|| format!("{text}%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Nanos};

    #[test]
    fn written_value_is_short_and_parses_back_equal() {
        for (value, wanted) in [
            ("419430400B", "400MiB"),
            ("12000000B", "12MB"),
            ("10485761B", "10485761B"),
            ("0B", "0B"),
            ("2000ms", "2s"),
            ("100000us", "100ms"),
            ("3600000ms", "1h"),
            ("90s", "90s"),
            ("1us", "1us"),
            ("7.000000000000001%", "7%"),
            ("0.00000000000001%", "0.00000000000001%"),
            ("33.3%", "33.3%"),
            ("0%", "0%"),
            ("256", "256"),
            ("0.01", "0.01"),
            ("400Ksectors", "400Ksectors"),
            ("write-back", "write-back"),
            ("18446744073709551615h", "18446744073709551615h"),
            ("", ""),
        ] {
            assert_eq!(written(value), wanted, "{value}");
        }
        for count in [1, 999, 1000, 1024, 4096, 12_000_000, 1 << 40, u64::MAX] {
            assert_eq!(written(&format!("{count}B")).parse(), Ok(Bytes(count)));
            assert_eq!(written(&format!("{count}ns")).parse(), Ok(Nanos(count)));
        }
    }
}
