//! What guests asked of one device, and how long that took: what it would have taken, had all devices been asked the same.
//!
//! A device that gets the large requests answers later than one of the same speed that gets the small ones; equal means would
//! be no equilibrium then, for one device is slower for whatever it is asked. So reads and writes are two lines, response time
//! over length, fitted by least squares; and the response time of a device is the mean of both where all guests together
//! ask: as often for each, and for as much at a time.
//!
//! A flush is what writes to this device left to be done, whatever others are asked. It counts as often as it came.

use crate::Direction;
use braid_base::Bytes;

/// Requests of one kind: the sums that a straight line needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Kind {
    requests: f64,
    ms: f64,
    kib: f64,
    kib_squared: f64,
    kib_ms: f64,
}

/// Fewer requests of a kind in a period say less than what is remembered of those before.
const FEW: f64 = 8.0;
/// Which part of the response time goes with the length, at the mean length, where that is not known.
pub const USUAL_PART: f64 = 0.5;
/// How much of what is remembered is so one period later.
const REMEMBERED: f64 = 0.5;

impl Kind {
    fn add(&mut self, other: &Kind) {
        self.requests += other.requests;
        self.ms += other.ms;
        self.kib += other.kib;
        self.kib_squared += other.kib_squared;
        self.kib_ms += other.kib_ms;
    }

    fn times(self, factor: f64) -> Kind {
        Kind {
            requests: self.requests * factor,
            ms: self.ms * factor,
            kib: self.kib * factor,
            kib_squared: self.kib_squared * factor,
            kib_ms: self.kib_ms * factor,
        }
    }

    /// The slope of the line, in milliseconds per KiB. Few requests, or such as are all of one length, say little of it: as much as
    /// `FEW` requests would say, it is `USUAL_PART`. No request is quicker for being longer, and none takes less than no time.
    fn slope(&self) -> f64 {
        let (mean_kib, mean_ms) = (self.kib / self.requests, self.ms / self.requests);
        let spread = self.kib_squared - self.kib * mean_kib + FEW * mean_kib * mean_kib;
        let together = self.kib_ms - self.kib * mean_ms + FEW * USUAL_PART * mean_kib * mean_ms;
        if spread > 0.0 { (together / spread).clamp(0.0, mean_ms / mean_kib) } else { 0.0 }
    }

    /// The mean response time, in milliseconds, had the requests been of `kib` on average.
    fn mean_ms_at(&self, kib: f64, slope: f64) -> f64 {
        // The line of other periods may be steeper than one that takes these requests and begins at no time.
        let slope = if self.kib > 0.0 { slope.min(self.ms / self.kib) } else { slope };
        (self.ms + slope * (kib * self.requests - self.kib)) / self.requests
    }
}

/// What a device was asked, or several: in a period, or in those before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Reads, writes.
    kinds: [Kind; 2],
    flushes: Kind,
}

impl Asked {
    /// A completed request of a guest.
    pub fn count(&mut self, direction: Direction, len: Bytes, ms: f64) {
        let kib = len.0 as f64 / 1024.0;
        let one = Kind { requests: 1.0, ms, kib, kib_squared: kib * kib, kib_ms: kib * ms };
        match direction {
            Direction::Read => self.kinds[0].add(&one),
            Direction::Write => self.kinds[1].add(&one),
            Direction::Flush => self.flushes.add(&one),
        }
    }

    /// What all of them took, in milliseconds.
    pub fn ms(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.ms).sum::<f64>() + self.flushes.ms
    }

    /// All of them.
    pub fn requests(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.requests).sum::<f64>() + self.flushes.requests
    }

    /// What two devices were asked, or one in two times.
    pub fn and(mut self, other: &Asked) -> Asked {
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(kind, other)| kind.add(other));
        self.flushes.add(&other.flushes);
        self
    }

    /// What is remembered of it a period later.
    pub fn remembered(self) -> Asked {
        Asked {
            kinds: self.kinds.map(|kind| kind.times(REMEMBERED)),
            flushes: self.flushes.times(REMEMBERED),
        }
    }

    /// The mean response time in milliseconds of a device that was asked this, and `before` in earlier periods, for
    /// requests as in `mix`. Nothing if it was asked for nothing.
    pub fn response_ms(&self, before: &Asked, mix: &Asked) -> Option<f64> {
        let (mut weights, mut sum_ms) = (0.0, 0.0);
        for ((now, before), mix) in self.kinds.iter().zip(&before.kinds).zip(&mix.kinds) {
            let mut both = *before;
            both.add(now);
            if mix.requests > 0.0 && both.requests > 0.0 {
                let measured = if now.requests < FEW { both } else { *now };
                weights += mix.requests;
                sum_ms += mix.requests * measured.mean_ms_at(mix.kib / mix.requests, both.slope());
            }
        }
        let mean_ms = if weights > 0.0 { sum_ms / weights } else { 0.0 };
        let requests = self.requests();
        let transfers = requests - self.flushes.requests;
        (requests > 0.0).then(|| (mean_ms * transfers + self.flushes.ms) / requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::KIB;

    /// Requests of one direction: how many, of how many KiB, in how many milliseconds each.
    fn asked(direction: Direction, requests: &[(usize, u64, f64)]) -> Asked {
        let mut asked = Asked::default();
        for &(count, kib, ms) in requests {
            (0..count).for_each(|_| asked.count(direction, KIB * kib, ms));
        }
        asked
    }

    fn assert_ms(measured: Option<f64>, expected: f64) {
        assert!(measured.is_some_and(|ms| (ms - expected).abs() < 1e-9), "{measured:?}, not {expected}");
    }

    /// As far as many requests outweigh what is usual.
    fn assert_about_ms(measured: Option<f64>, expected: f64) {
        assert!(measured.is_some_and(|ms| (ms - expected).abs() < 1e-3), "{measured:?}, not {expected}");
    }

    #[test]
    fn the_line_of_a_device_is_read_where_guests_ask() {
        const MANY: usize = 50_000;
        let (none, large) = (Asked::default(), asked(Direction::Write, &[(MANY, 32, 4.0), (MANY, 64, 6.0)]));
        let small = asked(Direction::Write, &[(MANY * 6, 8, 9.0)]);
        // 32 to 64 KiB take 2 ms more; the mean of all is 18 KiB.
        assert_about_ms(large.response_ms(&none, &large.and(&small)), 5.0 - 30.0 / 16.0);
        // Of 8 KiB alone nothing is known but what is usual.
        assert_ms(small.response_ms(&none, &large.and(&small)), 9.0 * (1.0 + 0.5 * 10.0 / 8.0));
    }

    #[test]
    fn reads_and_writes_weigh_as_with_all_guests_and_what_is_unknown_nothing() {
        let none = Asked::default();
        let one = asked(Direction::Read, &[(90, 4, 1.0)]).and(&asked(Direction::Write, &[(10, 4, 3.0)]));
        let other = asked(Direction::Read, &[(10, 4, 2.0)]).and(&asked(Direction::Write, &[(90, 4, 6.0)]));
        let mix = one.and(&other);
        assert_ms(one.response_ms(&none, &mix), 2.0);
        assert_ms(other.response_ms(&none, &mix), 4.0);
        assert_ms(asked(Direction::Read, &[(10, 4, 2.0)]).response_ms(&none, &mix), 2.0);
        assert_eq!(none.response_ms(&none, &mix), None);
    }

    #[test]
    fn large_requests_that_were_quicker_than_those_before_take_some_time() {
        let before = asked(Direction::Write, &[(400, 4, 1.0), (400, 64, 16.0)]);
        let large = asked(Direction::Write, &[(50, 64, 2.0)]);
        let small = asked(Direction::Write, &[(950, 4, 1.0)]);
        assert_ms(large.response_ms(&before, &large.and(&small)), 2.0 * 7.0 / 64.0);
    }

    #[test]
    fn flushes_count_as_often_as_they_came() {
        let none = Asked::default();
        let one = asked(Direction::Write, &[(90, 4, 1.0)]).and(&asked(Direction::Flush, &[(10, 0, 11.0)]));
        let other = asked(Direction::Write, &[(90, 4, 1.0)]);
        assert_ms(one.response_ms(&none, &one.and(&other)), 2.0);
        assert_ms(other.response_ms(&none, &one.and(&other)), 1.0);
        assert_ms(asked(Direction::Flush, &[(3, 0, 7.0)]).response_ms(&none, &one), 7.0);
    }

    #[test]
    fn a_few_requests_count_with_those_remembered() {
        let before = asked(Direction::Write, &[(38, 4, 1.0)]).remembered();
        let few = asked(Direction::Write, &[(1, 4, 21.0)]);
        assert_ms(few.response_ms(&before, &few), 2.0);
        let many = asked(Direction::Write, &[(8, 4, 21.0)]);
        assert_ms(many.response_ms(&before, &many), 21.0);
    }

    #[test]
    fn no_line_falls_and_none_begins_below_zero() {
        let none = Asked::default();
        let tiny = asked(Direction::Write, &[(1, 1, 0.0)]);
        let falling = asked(Direction::Write, &[(50, 4, 8.0), (50, 64, 1.0)]);
        assert_ms(falling.response_ms(&none, &tiny), 4.5);
        let steep = asked(Direction::Write, &[(500, 32, 0.0), (500, 64, 48.0)]);
        assert_ms(steep.response_ms(&none, &tiny), 0.5);
    }
}
