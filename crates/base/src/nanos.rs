//! Time in nanoseconds: a point on a clock with start zero, or a duration.

use crate::quantity::{ParseQuantityError, parse_quantity};
use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;

/// A duration, or a point in time counted from the start of the clock, in nanoseconds.
///
/// The clock is the runtime's: monotonic on a real machine, virtual in simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time; the start of the clock.
    pub const ZERO: Nanos = Nanos(0);
    /// End of time, for deadlines that never come.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// Microseconds as nanoseconds.
    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros * 1_000)
    }

    /// Milliseconds as nanoseconds.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// Seconds as nanoseconds.
    pub const fn from_secs(secs: u64) -> Nanos {
        Nanos(secs * 1_000_000_000)
    }

    /// Rounds to the nearest nanosecond; negative or not-a-number gives zero.
    pub fn from_secs_f64(secs: f64) -> Nanos {
        Nanos((secs * 1e9).round() as u64)
    }

    /// As seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// As milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Time since `earlier`, or zero if `earlier` lies ahead.
    pub const fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    /// Saturates: a deadline beyond the end of time never comes.
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.checked_sub(other.0).expect("a duration is negative"))
    }
}

impl Mul<u64> for Nanos {
    type Output = Nanos;
    fn mul(self, factor: u64) -> Nanos {
        Nanos(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Nanos {
    type Output = Nanos;
    fn div(self, parts: u64) -> Nanos {
        Nanos(self.0 / parts)
    }
}

/// `85 µs`, `2.50 ms`, `12 s`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
        for (unit, name) in units {
            if self.0 >= unit {
                return match self.0.is_multiple_of(unit) {
                    true => write!(f, "{} {name}", self.0 / unit),
                    false => write!(f, "{:.2} {name}", self.0 as f64 / unit as f64),
                };
            }
        }
        write!(f, "{} ns", self.0)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

/// Reads `2s`, `5ms`, `85us`, `85µs`, `100ns`, `3min`.
impl FromStr for Nanos {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Nanos, ParseQuantityError> {
        const UNITS: &[(&str, u64)] = &[
            ("ns", 1),
            ("us", 1_000),
            ("µs", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("min", 60_000_000_000),
            ("h", 3_600_000_000_000),
        ];
        parse_quantity(text, UNITS, "a time such as 5ms, 2s or 10min").map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_only_with_unit() {
        assert_eq!("5ms".parse(), Ok(Nanos::from_millis(5)));
        assert_eq!("1.5s".parse(), Ok(Nanos::from_millis(1_500)));
        assert!("5".parse::<Nanos>().expect_err("a bare number has no unit").to_string().contains("5ms"));
    }

    #[test]
    fn times_are_displayed_in_largest_fitting_unit() {
        assert_eq!(Nanos::from_micros(85).to_string(), "85 µs");
        assert_eq!(Nanos(2_500_000).to_string(), "2.50 ms");
    }
}
