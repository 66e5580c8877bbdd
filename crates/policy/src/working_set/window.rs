//! The sliding window (section III-B.1): `ws(t0, τ)` is the set of requested blocks from `t0 − τ` to `t0`,
//! the time of the last request.
//!
//! The window advances by half of its length. Between requests the window stands still, so a long
//! reorganization keeps the hotness from its start.
//!
//! "The sliding window size τ is dynamically adjusted to strike a balance between working set completeness
//! and the cost of maintaining" it; the paper does not say how. Here the window is adjusted at the end of
//! each half, by the requests of the half:
//!
//! - A table has evicted rows in the window: the window is halved, to fit the table.
//! - Most requests were for blocks that are not hot: the working set is incomplete, and the window is
//!   doubled.
//! - Nearly all hot blocks became hot within one half: the window is halved, because half would do and costs
//!   less.

use super::settings::Length;
use super::table::Asked;
use braid_base::Nanos;

/// Position and length of the window.
#[derive(Clone, Debug)]
pub struct Window {
    length: Length,
    tau: Nanos,
    /// Number of the present half.
    half: u32,
    /// Start of the present half.
    since: Nanos,
    tally: Tally,
}

/// Counts of a half's requests.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    requests: u64,
    /// Requests to hot blocks.
    hot: u64,
    /// Requests to blocks that the present half alone makes hot.
    hot_by_half: u64,
}

/// First length of an adaptive window: phases of some applications.
const FIRST: Nanos = Nanos::from_secs(60);
/// Bounds of an adaptive window.
const LEAST: Nanos = Nanos::from_secs(1);
const MOST: Nanos = Nanos::from_secs(86_400);
/// Least requests for an adjustment by hotness.
const ENOUGH: u64 = 256;
/// The working set is incomplete if the share of requests to hot blocks is below this.
const COMPLETE: f64 = 0.5;
/// The window is too long if at least this share of hot requests would be hot within one half.
const TOO_LONG: f64 = 0.9;

impl Window {
    pub fn new(length: Length) -> Window {
        let tau = match length {
            Length::Adaptive => FIRST,
            Length::Fixed(tau) => tau,
            Length::Share(_) => LEAST,
        };
        Window { length, tau, half: 1, since: Nanos::ZERO, tally: Tally::default() }
    }

    /// Returns τ, the length of the window.
    pub fn tau(&self) -> Nanos {
        self.tau
    }

    /// Returns the half of the last request.
    pub fn half(&self) -> u32 {
        self.half
    }

    /// Returns the half of a request at `now`. `lost` returns the number of rows that tables have evicted
    /// since the last half.
    #[inline]
    pub fn half_at(&mut self, now: Nanos, lost: impl FnOnce() -> u64) -> u32 {
        if now >= self.since + self.tau / 2 {
            self.advance(now, lost());
        }
        self.half
    }

    /// Counts a request of the present half.
    #[inline]
    pub fn count(&mut self, asked: Asked, threshold_h: u8) {
        let Asked { in_window, in_half } = asked;
        self.tally.requests += 1;
        self.tally.hot += u64::from(in_window > threshold_h);
        self.tally.hot_by_half += u64::from(in_half > threshold_h);
    }

    /// Restores the length of an earlier opening, if the window is adaptive.
    pub fn restore(&mut self, tau: Nanos) {
        if self.length == Length::Adaptive {
            self.tau = tau.clamp(LEAST, MOST);
        }
    }

    #[cold]
    fn advance(&mut self, now: Nanos, lost: u64) {
        let half = (self.tau / 2).max(Nanos(1));
        let passed = (now - self.since).0 / half.0;
        // After two halves the window is empty; more halves make no difference.
        self.half = self.half.wrapping_add(passed.min(2) as u32);
        self.since += Nanos(half.0 * passed);
        let tally = std::mem::take(&mut self.tally);
        self.tau = match self.length {
            Length::Fixed(tau) => tau,
            Length::Share(share) => Nanos((now.0 as f64 * share) as u64).max(LEAST),
            Length::Adaptive => tally.adjust(self.tau, lost).clamp(LEAST, MOST),
        };
        if now >= self.since + self.tau / 2 {
            self.since = now;
        }
    }
}

impl Tally {
    /// Returns the length of the window that these requests would have needed.
    fn adjust(self, tau: Nanos, lost: u64) -> Nanos {
        let Tally { requests, hot, hot_by_half } = self;
        let is_incomplete = (hot as f64) < COMPLETE * requests as f64;
        let is_too_long = hot_by_half as f64 >= TOO_LONG * hot as f64;
        match requests {
            _ if lost > 0 => tau / 2,
            ENOUGH.. if is_incomplete => tau + tau,
            ENOUGH.. if is_too_long => tau / 2,
            _ => tau,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `requests` requests, one each `gap`, repeating after `period` requests. Returns the final length
    /// of the window.
    fn tau_after(requests: u64, period: u64, gap: Nanos) -> Nanos {
        let mut window = Window::new(Length::Adaptive);
        let mut seen = vec![(0_u32, 0_u8, 0_u8); period as usize];
        for i in 0..requests {
            let half = window.half_at(Nanos(gap.0 * i), || 0);
            let (last, in_half, before) = &mut seen[(i % period) as usize];
            match half - *last {
                0 => {}
                1 => (*before, *in_half) = (*in_half, 0),
                _ => (*before, *in_half) = (0, 0),
            }
            (*last, *in_half) = (half, in_half.saturating_add(1));
            window.count(Asked { in_window: in_half.saturating_add(*before), in_half: *in_half }, 3);
        }
        window.tau()
    }

    #[test]
    fn adaptive_window_grows_to_cover_repeat_distance() {
        let gap = Nanos::from_millis(10);
        // Repeated after 100 s: five times in 500 s, and within one half in no less than 800 s.
        let tau = tau_after(400_000, 10_000, gap);
        assert!(tau >= Nanos::from_secs(240) && tau <= Nanos::from_secs(960), "{tau}");
        // Repeated after 100 ms: seconds are enough to see many repeats, and shorter windows have too few
        // requests to adjust.
        let tau = tau_after(400_000, 10, gap);
        assert!(tau >= LEAST && tau <= Nanos::from_secs(8), "{tau}");
    }

    #[test]
    fn adaptive_window_doubles_if_cold_and_halves_on_overflow() {
        let mut window = Window::new(Length::Adaptive);
        for second in 0..=30 {
            window.half_at(Nanos::from_secs(second), || 0);
            (0..ENOUGH).for_each(|_| window.count(Asked { in_window: 1, in_half: 1 }, 3));
        }
        assert_eq!(window.tau(), FIRST + FIRST);
        window.half_at(Nanos::from_secs(90), || 5);
        assert_eq!(window.tau(), FIRST);
    }

    #[test]
    fn proportional_window_grows_with_run() {
        let mut window = Window::new(Length::Share(0.1));
        for second in 0..1000 {
            window.half_at(Nanos::from_secs(second), || 0);
        }
        let tau = window.tau();
        assert!(tau > Nanos::from_secs(90) && tau <= Nanos::from_secs(100), "{tau}");
    }

    #[test]
    fn long_pause_empties_window() {
        let mut window = Window::new(Length::Fixed(Nanos::from_secs(10)));
        let halves = [0, 4, 5, 9, 11, 1000, 1004, 1005].map(|s| window.half_at(Nanos::from_secs(s), || 0));
        assert_eq!(halves, [1, 1, 2, 2, 3, 5, 5, 6]);
    }
}
