//! Detection of slow devices: a drive may fail slowly, answer every request, and delay all of its callers.
//!
//! The measure is the response time divided by the requests in flight at the start of a request:
//! approximately the service time. A growing queue therefore makes no device slow. A device is slow if its
//! measure exceeds two limits for several seconds in a row: ten times the device's own history, and the worst
//! case of a sound device of its class. The second limit is needed because a sound disk becomes far more than
//! ten times slower when scattered requests follow sequential requests. Slow seconds do not enter the
//! history. A device that repairs itself is given its repair time on top.

use braid_base::{Bytes, DeviceClass, Nanos};
use braid_policy::Direction;
use std::cell::{Cell, RefCell};

/// Factor over the history that counts as slow.
const TIMES: f64 = 10.0;
/// Consecutive seconds with completed requests that make a device slow, or end the slow state.
const SECONDS: u32 = 5;
/// Requests of a direction needed for a history.
const KNOWN: f64 = 64.0;
/// Requests of a direction that the history remembers.
const REMEMBERED: f64 = 8192.0;

/// Worst-case time of a request on a sound device of a class, averaged over a second: positioning with
/// retries, or garbage collection, plus transfer.
fn longest(class: DeviceClass, len: Bytes) -> f64 {
    let (fixed, bytes_per_second) = match class {
        DeviceClass::Ssd => (0.005, 20e6),
        DeviceClass::Hdd => (0.040, 10e6),
    };
    fixed + len.0 as f64 / bytes_per_second
}

/// Sums over requests of one direction.
#[derive(Clone, Copy, Default)]
struct Sum {
    requests: f64,
    /// Seconds of all requests, each divided by the requests in flight at its start.
    took: f64,
    /// Worst-case seconds of all requests.
    longest: f64,
}

/// Present and past speed of a device.
#[derive(Default)]
pub(crate) struct Speed {
    running: Cell<u32>,
    /// Sums since the last tick, by direction.
    lately: RefCell<[Sum; 2]>,
    usual: Cell<[Sum; 2]>,
    /// Consecutive seconds that contradict `is_slow`.
    contrary: Cell<u32>,
    is_slow: Cell<bool>,
    /// Factor over the history in the last judged second.
    times: Cell<f64>,
}

impl Speed {
    /// Notes the start of a request. Returns the requests in flight, the new request included.
    #[inline]
    pub fn begin(&self) -> u32 {
        self.running.set(self.running.get() + 1);
        self.running.get()
    }

    /// Notes the end of a request. `of` is the result of [`Speed::begin`].
    #[inline]
    pub fn end(&self, class: DeviceClass, direction: Direction, len: Bytes, latency: Nanos, of: u32) {
        self.running.set(self.running.get() - 1);
        let sum = &mut self.lately.borrow_mut()[usize::from(direction == Direction::Write)];
        sum.requests += 1.0;
        sum.took += latency.as_secs_f64() / f64::from(of);
        sum.longest += longest(class, len);
    }

    /// Ends a second. Returns true if the device has become slow, or is no longer slow. A device becomes slow
    /// later by the seconds for which the device may repair itself.
    pub fn tick(&self, repair: u32) -> bool {
        let lately = self.lately.take();
        let mut usual = self.usual.get();
        let (mut took, mut expected, mut longest) = (0.0, 0.0, 0.0);
        for (now, past) in lately.iter().zip(&usual).filter(|(_, past)| past.requests >= KNOWN) {
            took += now.took;
            expected += past.took / past.requests * now.requests;
            longest += now.longest;
        }
        let is_judged = expected > 0.0;
        let seems_slow = is_judged && took >= TIMES * expected && took > longest;
        if !seems_slow {
            for (past, now) in usual.iter_mut().zip(&lately) {
                let left = (REMEMBERED / (past.requests + now.requests).max(1.0)).min(1.0);
                past.requests = (past.requests + now.requests) * left;
                past.took = (past.took + now.took) * left;
            }
            self.usual.set(usual);
        }
        if is_judged {
            self.times.set(took / expected);
            let contrary = if seems_slow == self.is_slow.get() { 0 } else { self.contrary.get() + 1 };
            let limit = if self.is_slow.get() { SECONDS } else { SECONDS + repair };
            self.contrary.set(contrary % limit);
            if contrary == limit {
                self.is_slow.set(seems_slow);
                return true;
            }
        }
        false
    }

    /// True if the device is slow: ten times slower than its history.
    pub fn is_slow(&self) -> bool {
        self.is_slow.get()
    }

    /// Factor over the history while the device is slow.
    pub fn times_slower(&self) -> Option<f64> {
        self.is_slow().then(|| self.times.get())
    }

    /// True if no request is in flight: nothing shows whether the device is still slow.
    pub fn is_idle(&self) -> bool {
        self.running.get() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::KIB;

    const DISK: DeviceClass = DeviceClass::Hdd;

    /// One second with `reads` reads of 4 KiB, each `millis` long in a queue of `queue`.
    fn second(speed: &Speed, class: DeviceClass, reads: u32, millis: u64, queue: u32) -> bool {
        for _ in 0..reads {
            speed.begin();
            speed.end(class, Direction::Read, KIB * 4, Nanos::from_millis(millis), queue);
        }
        speed.tick(0)
    }

    fn with_history() -> Speed {
        let speed = Speed::default();
        (0..100).for_each(|_| assert!(!second(&speed, DISK, 100, 8, 1)));
        speed
    }

    #[test]
    fn five_seconds_set_or_clear_slow_detection() {
        let speed = with_history();
        let changes: Vec<bool> = (0..6).map(|_| second(&speed, DISK, 10, 100, 1)).collect();
        assert_eq!(changes, [false, false, false, false, true, false]);
        assert!(speed.times_slower().is_some_and(|times| (12.0..13.0).contains(&times)), "{:?}", speed.times);
        let changes: Vec<bool> = (0..6).map(|_| second(&speed, DISK, 100, 10, 1)).collect();
        assert_eq!(changes, [false, false, false, false, true, false]);
        assert!(!speed.is_slow());
    }

    #[test]
    fn a_long_queue_makes_no_device_slow() {
        let speed = with_history();
        assert!((0..20).all(|_| !second(&speed, DISK, 100, 800, 100)));
    }

    /// A disk needs 0.1 ms for a sequential request, and 15 ms for a scattered request.
    #[test]
    fn changed_load_does_not_mark_device_slow() {
        let speed = Speed::default();
        (0..100).for_each(|_| assert!(!second(&speed, DISK, 1000, 0, 1)));
        (0..100).for_each(|_| assert!(!second(&speed, DISK, 1000, 1, 10)));
        assert!((0..100).all(|_| !second(&speed, DISK, 60, 15, 1)));
    }

    #[test]
    fn one_fast_second_resets_slow_detection() {
        let speed = with_history();
        for _ in 0..10 {
            assert!((0..4).all(|_| !second(&speed, DISK, 10, 200, 1)));
            assert!(!second(&speed, DISK, 10, 8, 1));
        }
    }

    /// If each request takes more than a second, requests end only in every other second.
    #[test]
    fn seconds_without_completions_keep_slow_detection() {
        let speed = with_history();
        for _ in 0..4 {
            assert!(!second(&speed, DISK, 1, 1500, 1));
            assert!(!second(&speed, DISK, 0, 0, 1));
        }
        assert!(second(&speed, DISK, 1, 1500, 1) && speed.is_slow());
    }

    #[test]
    fn slow_seconds_within_the_repair_time_do_not_count() {
        let speed = with_history();
        let slow_second = || {
            for _ in 0..10 {
                speed.begin();
                speed.end(DISK, Direction::Read, KIB * 4, Nanos::from_millis(100), 1);
            }
            speed.tick(45)
        };
        assert!((0..49).all(|_| !slow_second()));
        assert!(slow_second() && speed.is_slow());
    }

    #[test]
    fn a_device_without_a_history_is_not_judged() {
        let speed = Speed::default();
        assert!((0..3).all(|_| !second(&speed, DISK, 20, 1000, 1)));
        assert!(!speed.is_slow());
    }
}
