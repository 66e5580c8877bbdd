//! How fast copies that are behind are brought up to date: what was behind in the last seconds, looked at
//! once a second.

use braid_base::{Bytes, Nanos};
use std::cell::RefCell;
use std::collections::VecDeque;

/// What was behind lately.
#[derive(Default)]
pub(crate) struct CatchUp {
    lately: RefCell<VecDeque<(Nanos, Bytes)>>,
}

/// So many seconds give the rate.
const WINDOW: Nanos = Nanos::from_secs(10);

impl CatchUp {
    /// So much is behind now.
    pub fn note(&self, now: Nanos, behind: Bytes) {
        let mut lately = self.lately.borrow_mut();
        while lately.front().is_some_and(|(then, _)| now.saturating_sub(*then) > WINDOW) {
            lately.pop_front();
        }
        // Something has fallen behind: the rate begins anew.
        if lately.back().is_some_and(|(_, before)| *before < behind) {
            lately.clear();
        }
        lately.push_back((now, behind));
    }

    /// Bytes in a second, and how long the rest takes at this rate; none if nothing is behind, or nothing
    /// moves.
    pub fn rate(&self, now: Nanos, behind: Bytes) -> (f64, Option<f64>) {
        let lately = self.lately.borrow();
        let Some((then, before)) = lately.front() else { return (0.0, None) };
        let seconds = now.saturating_sub(*then).as_secs_f64();
        if seconds <= 0.0 || *before <= behind {
            return (0.0, None);
        }
        let rate = (*before - behind).0 as f64 / seconds;
        (rate, (behind > Bytes::ZERO).then(|| behind.0 as f64 / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;

    #[test]
    fn the_rate_is_that_of_the_last_ten_seconds() {
        let catch_up = CatchUp::default();
        assert_eq!(catch_up.rate(Nanos::ZERO, MIB), (0.0, None));
        for second in 0..30 {
            catch_up.note(Nanos::from_secs(second), MIB * (100 - second));
        }
        assert_eq!(catch_up.rate(Nanos::from_secs(29), MIB * 71), (f64::from(1 << 20), Some(71.0)));
        assert_eq!(catch_up.rate(Nanos::from_secs(30), Bytes::ZERO).1, None);
        // A device comes back that lacks more.
        catch_up.note(Nanos::from_secs(30), MIB * 500);
        assert_eq!(catch_up.rate(Nanos::from_secs(30), MIB * 500), (0.0, None));
        assert_eq!(catch_up.rate(Nanos::from_secs(32), MIB * 498), (f64::from(1 << 20), Some(498.0)));
    }
}
