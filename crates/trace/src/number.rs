//! Parses numbers and fields from bytes, without allocation and without overflow.

use braid_base::Nanos;

/// Parses a decimal number without sign.
pub(crate) fn whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(digit.into())?;
    }
    Some(value)
}

/// Parses a hexadecimal number, with or without `0x`.
pub(crate) fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = (byte as char).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// Parses a decimal number of units as nanoseconds: `0.026214` in units of 1 s is 26,214,000 ns. Exact to the
/// nanosecond, except for a number with an exponent, parsed as floating point.
pub(crate) fn time(text: &[u8], unit: Nanos) -> Option<u64> {
    let point = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
    let fraction = text.get(point + 1..).unwrap_or_default();
    let units = if point == 0 && !fraction.is_empty() { Some(0) } else { whole(&text[..point]) };
    // Digits beyond the twelfth are below a nanosecond for units of up to 1,000 s.
    match (units, fraction_of(&fraction[..fraction.len().min(12)], unit)) {
        (Some(units), Some(part)) if fraction.iter().all(u8::is_ascii_digit) => {
            units.checked_mul(unit.0)?.checked_add(part)
        }
        _ => with_exponent(text, unit),
    }
}

fn fraction_of(digits: &[u8], unit: Nanos) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    let scale = 10u128.pow(digits.len() as u32);
    let part = u128::from(whole(digits)?) * u128::from(unit.0);
    u64::try_from((part + scale / 2) / scale).ok()
}

fn with_exponent(text: &[u8], unit: Nanos) -> Option<u64> {
    if text.len() > 40 || !text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'e')) {
        return None;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let nanos = value * unit.0 as f64;
    (0.0..u64::MAX as f64).contains(&nanos).then(|| nanos.round() as u64)
}

/// A line split into fields. Fields beyond [`Fields::MOST`] are counted, but not kept.
pub(crate) struct Fields<'a> {
    fields: [&'a [u8]; Fields::MOST],
    count: usize,
}

impl<'a> Fields<'a> {
    pub(crate) const MOST: usize = 16;

    /// Splits at commas. Trims spaces around each field, and double quotes around a whole field.
    pub(crate) fn by_comma(line: &'a [u8]) -> Fields<'a> {
        Fields::of(line.split(|&byte| byte == b',').map(|field| unquoted(field.trim_ascii())))
    }

    /// Splits at any number of spaces and tabs.
    pub(crate) fn by_space(line: &'a [u8]) -> Fields<'a> {
        let space = |byte: &u8| *byte == b' ' || *byte == b'\t';
        Fields::of(line.split(space).filter(|field| !field.is_empty()))
    }

    fn of(parts: impl Iterator<Item = &'a [u8]>) -> Fields<'a> {
        let mut found = Fields { fields: [&[]; Fields::MOST], count: 0 };
        for part in parts {
            if let Some(field) = found.fields.get_mut(found.count) {
                *field = part;
            }
            found.count += 1;
        }
        found
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns a field, empty if absent.
    pub(crate) fn get(&self, place: usize) -> &'a [u8] {
        self.fields.get(place).copied().unwrap_or_default()
    }
}

fn unquoted(field: &[u8]) -> &[u8] {
    match field {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        assert_eq!(time(b"0.026214", SECOND), Some(26_214_000));
        assert_eq!(time(b"12", SECOND), Some(12_000_000_000));
        assert_eq!(time(b".5", Nanos::from_millis(1)), Some(500_000));
        assert_eq!(time(b"4370.000000001", SECOND), Some(4_370_000_000_001));
        assert_eq!(time(b"1.0E-5", SECOND), Some(10_000));
        assert_eq!(time(b"128166372003061629", Nanos(100)), Some(12_816_637_200_306_162_900));
    }

    #[test]
    fn an_invalid_time_is_rejected() {
        for text in [&b""[..], b".", b"-1", b"1.2.3", b"1,5", b"nan", b"inf", b"1e400", b"0x10", b"1.5x"] {
            assert_eq!(time(text, SECOND), None, "{}", text.escape_ascii());
        }
        assert_eq!(time(b"99999999999999999999", SECOND), None);
        assert_eq!(time(b"18446744073709551615", SECOND), None);
    }

    #[test]
    fn numbers_do_not_wrap() {
        assert_eq!(whole(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!((whole(b"18446744073709551616"), whole(b"+1"), whole(b"")), (None, None, None));
        assert_eq!(
            (hexadecimal(b"0x2A"), hexadecimal(b"2a"), hexadecimal(b"0x")),
            (Some(42), Some(42), None)
        );
        assert_eq!(hexadecimal(b"11112222333344445"), None);
    }

    #[test]
    fn fields_beyond_the_last_kept_are_counted() {
        let line = b"1, 2 ,3".repeat(20);
        let fields = Fields::by_comma(&line);
        assert_eq!((fields.get(1), fields.count(), fields.get(100)), (&b"2"[..], 41, &b""[..]));
        let fields = Fields::by_comma(b"\"a\", \" 2 \",\",\"\"");
        assert_eq!([0, 1, 2, 3].map(|place| fields.get(place)), [&b"a"[..], b"2", b"\"", b""]);
        let fields = Fields::by_space(b"  a\t b ");
        assert_eq!((fields.count(), fields.get(1)), (2, &b"b"[..]));
    }
}
