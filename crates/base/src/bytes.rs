//! A number of bytes: a length, or an offset from the start of a volume or device.

use crate::quantity::{ParseQuantityError, parse_quantity};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Rem, Sub, SubAssign};
use std::str::FromStr;

/// A length in bytes, or an offset in bytes from the start of a volume or device.
///
/// Sums that overflow panic in every build: an overflowing offset is a bug, and must not wrap on a disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// 2^10 bytes.
pub const KIB: Bytes = Bytes(1 << 10);
/// 2^20 bytes.
pub const MIB: Bytes = Bytes(1 << 20);
/// 2^30 bytes.
pub const GIB: Bytes = Bytes(1 << 30);
/// 2^40 bytes.
pub const TIB: Bytes = Bytes(1 << 40);
/// 2^50 bytes.
pub const PIB: Bytes = Bytes(1 << 50);
/// 2^60 bytes.
pub const EIB: Bytes = Bytes(1 << 60);
/// 512 bytes: the smallest unit that a disk writes atomically.
pub const SECTOR: Bytes = Bytes(512);

impl Bytes {
    /// No bytes; the start of a volume or device.
    pub const ZERO: Bytes = Bytes(0);

    /// Count as a `usize`, for slices. Braid builds for 64-bit machines only.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// A length of memory.
    pub const fn of_len(len: usize) -> Bytes {
        Bytes(len as u64)
    }

    /// Largest multiple of `unit` up to this value.
    pub const fn align_down(self, unit: Bytes) -> Bytes {
        // Almost all units are powers of two, and a division takes longer than all else here.
        match unit.0.is_power_of_two() {
            true => Bytes(self.0 & !(unit.0 - 1)),
            false => Bytes(self.0 - self.0 % unit.0),
        }
    }

    /// Smallest multiple of `unit` from this value on.
    pub const fn align_up(self, unit: Bytes) -> Bytes {
        match unit.0.is_power_of_two() {
            true => Bytes((self.0 + (unit.0 - 1)) & !(unit.0 - 1)),
            false => Bytes(self.0.next_multiple_of(unit.0)),
        }
    }

    /// True for a multiple of `unit`.
    pub const fn is_aligned(self, unit: Bytes) -> bool {
        match unit.0.is_power_of_two() {
            true => self.0 & (unit.0 - 1) == 0,
            false => self.0.is_multiple_of(unit.0),
        }
    }

    /// Sum, or `None` on overflow: for offsets and lengths from outside.
    pub const fn checked_add(self, other: Bytes) -> Option<Bytes> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Bytes(sum)),
            None => None,
        }
    }

    /// Difference, or zero if `other` is greater.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.checked_add(other.0).expect("a sum of bytes overflows 64 bits"))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.checked_sub(other.0).expect("a difference of bytes is negative"))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, factor: u64) -> Bytes {
        Bytes(self.0.checked_mul(factor).expect("a product of bytes overflows 64 bits"))
    }
}

/// How many whole times `other` fits.
impl Div for Bytes {
    type Output = u64;
    #[inline]
    fn div(self, other: Bytes) -> u64 {
        // As in `align_down`.
        if other.0.is_power_of_two() { self.0 >> other.0.trailing_zeros() } else { self.0 / other.0 }
    }
}

impl Div<u64> for Bytes {
    type Output = Bytes;
    fn div(self, parts: u64) -> Bytes {
        Bytes(self.0 / parts)
    }
}

impl Rem for Bytes {
    type Output = Bytes;
    fn rem(self, other: Bytes) -> Bytes {
        Bytes(self.0 % other.0)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

/// In the largest binary unit that fits, whole or with two decimals: `128 KiB`, `1.50 GiB`, `17 B`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(EIB, "EiB"), (PIB, "PiB"), (TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
        for (unit, name) in units {
            if *self >= unit {
                return match self.is_aligned(unit) {
                    true => write!(f, "{} {name}", *self / unit),
                    false => write!(f, "{:.2} {name}", self.0 as f64 / unit.0 as f64),
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

/// Reads `4096`, `128KiB`, `10GiB`, `73GB` (decimal), `512B`.
impl FromStr for Bytes {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Bytes, ParseQuantityError> {
        const UNITS: &[(&str, u64)] = &[
            ("", 1),
            ("B", 1),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
            ("PiB", 1 << 50),
            ("EiB", 1 << 60),
            ("K", 1 << 10),
            ("M", 1 << 20),
            ("G", 1 << 30),
            ("T", 1 << 40),
            ("P", 1 << 50),
            ("E", 1 << 60),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("TB", 1_000_000_000_000),
            ("PB", 1_000_000_000_000_000),
            ("EB", 1_000_000_000_000_000_000),
        ];
        parse_quantity(text, UNITS, "a size such as 4096, 128KiB, 10GiB or 73GB").map(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        assert_eq!("128KiB".parse(), Ok(KIB * 128));
        assert_eq!("1.5 GiB".parse(), Ok(MIB * 1536));
        assert_eq!("73GB".parse(), Ok(Bytes(73_000_000_000)));
        assert_eq!("0".parse(), Ok(Bytes::ZERO));
        assert_eq!(("3PiB".parse(), "8EiB".parse()), (Ok(PIB * 3), Ok(EIB * 8)));
        assert_eq!(((EIB * 8).to_string(), (PIB * 3).to_string()), ("8 EiB".to_owned(), "3 PiB".to_owned()));
        assert!("16EiB".parse::<Bytes>().is_err(), "it does not fit 64 bits");
    }

    #[test]
    fn an_invalid_size_names_the_remedy() {
        for wrong in ["", "GiB", "-4KiB", "4 parsecs", "99999999999TiB", "NaN", "1e99"] {
            let error = wrong.parse::<Bytes>().expect_err(wrong).to_string();
            assert!(error.contains("10GiB"), "{wrong}: {error}");
        }
    }

    #[test]
    fn sizes_are_displayed_in_largest_fitting_unit() {
        assert_eq!((KIB * 128).to_string(), "128 KiB");
        assert_eq!(Bytes(1_610_612_736).to_string(), "1.50 GiB");
        assert_eq!(Bytes(17).to_string(), "17 B");
    }
}
