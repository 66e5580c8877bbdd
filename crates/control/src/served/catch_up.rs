//! Rate at which stale copies are brought up to date, from the stale bytes of the last seconds. The daemon
//! notes the stale bytes once a second.

use braid_base::{Bytes, Nanos};
use std::cell::RefCell;
use std::collections::VecDeque;

/// Stale bytes of the last [`WINDOW`], with the time of each sample.
#[derive(Default)]
pub(crate) struct CatchUp {
    lately: RefCell<VecDeque<(Nanos, Bytes)>>,
}

/// Time over which the rate is measured.
const WINDOW: Nanos = Nanos::from_secs(10);

impl CatchUp {
    /// Notes that `behind` bytes are stale now.
    pub fn note(&self, now: Nanos, behind: Bytes) {
        let mut lately = self.lately.borrow_mut();
        while lately.front().is_some_and(|(then, _)| now.saturating_sub(*then) > WINDOW) {
            lately.pop_front();
        }
        // More bytes have become stale: measure the rate from here.
        if lately.back().is_some_and(|(_, before)| *before < behind) {
            lately.clear();
        }
        lately.push_back((now, behind));
    }

    /// Returns bytes in a second, and the seconds that the rest takes at this rate. The seconds are `None` if
    /// nothing is stale or nothing moves.
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
    fn catch_up_rate_covers_the_last_ten_seconds() {
        let catch_up = CatchUp::default();
        assert_eq!(catch_up.rate(Nanos::ZERO, MIB), (0.0, None));
        for second in 0..30 {
            catch_up.note(Nanos::from_secs(second), MIB * (100 - second));
        }
        assert_eq!(catch_up.rate(Nanos::from_secs(29), MIB * 71), (f64::from(1 << 20), Some(71.0)));
        assert_eq!(catch_up.rate(Nanos::from_secs(30), Bytes::ZERO).1, None);
        // A device returns with more stale bytes.
        catch_up.note(Nanos::from_secs(30), MIB * 500);
        assert_eq!(catch_up.rate(Nanos::from_secs(30), MIB * 500), (0.0, None));
        assert_eq!(catch_up.rate(Nanos::from_secs(32), MIB * 498), (f64::from(1 << 20), Some(498.0)));
    }
}
