//! How fast a device is beside its own history: a drive that fails slowly answers every request, and
//! everybody waits for it.
//!
//! What counts is the response time for each request that the device had when this one began, which is about
//! its service time. So a queue that grows makes no device slow. A device is slow if that time was, second
//! after second, both ten times its own in the past and beyond what sound devices of its class take for the
//! worst load: a disk that gets scattered requests after sequential ones is far more than ten times slower,
//! and is no worse than before. Seconds in which it was slow do not become history.

use braid_base::{Bytes, DeviceClass, Nanos};
use braid_policy::Direction;
use std::cell::{Cell, RefCell};

/// So many times slower than its history is slow.
const TIMES: f64 = 10.0;
/// For so many seconds in a row, of those in which requests ended. As many end it.
const SECONDS: u32 = 5;
/// Requests of a direction without which there is no history.
const KNOWN: f64 = 64.0;
/// Requests of a direction that history remembers.
const REMEMBERED: f64 = 8192.0;

/// What a sound device of a class takes at most for a request, on average over a second: positioning with its
/// retries, or garbage collection, and in a second so many bytes.
fn longest(class: DeviceClass, len: Bytes) -> f64 {
    let (fixed, bytes_per_second) = match class {
        DeviceClass::Ssd => (0.005, 20e6),
        DeviceClass::Hdd => (0.040, 10e6),
    };
    fixed + len.0 as f64 / bytes_per_second
}

/// Requests of one direction.
#[derive(Clone, Copy, Default)]
struct Sum {
    requests: f64,
    /// Seconds that they took, each divided by the requests that the device had when it began.
    took: f64,
    /// What they may take at most.
    longest: f64,
}

/// How fast a device was and is.
#[derive(Default)]
pub(crate) struct Speed {
    running: Cell<u32>,
    /// Since the last tick, by direction.
    lately: RefCell<[Sum; 2]>,
    usual: Cell<[Sum; 2]>,
    /// Seconds in a row that contradict `is_slow`.
    contrary: Cell<u32>,
    is_slow: Cell<bool>,
    /// How many times longer than usual requests took in the last second that was judged.
    times: Cell<f64>,
}

impl Speed {
    /// A request begins; says how many the device has now.
    #[inline]
    pub fn begin(&self) -> u32 {
        self.running.set(self.running.get() + 1);
        self.running.get()
    }

    /// A request has ended that was one of `of` when it began.
    #[inline]
    pub fn end(&self, class: DeviceClass, direction: Direction, len: Bytes, latency: Nanos, of: u32) {
        self.running.set(self.running.get() - 1);
        let sum = &mut self.lately.borrow_mut()[usize::from(direction == Direction::Write)];
        sum.requests += 1.0;
        sum.took += latency.as_secs_f64() / f64::from(of);
        sum.longest += longest(class, len);
    }

    /// A second has passed. True if the device has become slow, or is not slow any more.
    pub fn tick(&self) -> bool {
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
            self.contrary.set(contrary % SECONDS);
            if contrary == SECONDS {
                self.is_slow.set(seems_slow);
                return true;
            }
        }
        false
    }

    /// Whether it is ten times slower than it was.
    pub fn is_slow(&self) -> bool {
        self.is_slow.get()
    }

    /// How many times slower than usual it is while it is slow.
    pub fn times_slower(&self) -> Option<f64> {
        self.is_slow().then(|| self.times.get())
    }

    /// Whether it has no request: nothing will tell whether it is still slow.
    pub fn is_idle(&self) -> bool {
        self.running.get() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::KIB;

    const DISK: DeviceClass = DeviceClass::Hdd;

    /// A second with so many reads of 4 KiB, which took so long in a queue of so many.
    fn second(speed: &Speed, class: DeviceClass, reads: u32, millis: u64, queue: u32) -> bool {
        for _ in 0..reads {
            speed.begin();
            speed.end(class, Direction::Read, KIB * 4, Nanos::from_millis(millis), queue);
        }
        speed.tick()
    }

    fn with_history() -> Speed {
        let speed = Speed::default();
        (0..100).for_each(|_| assert!(!second(&speed, DISK, 100, 8, 1)));
        speed
    }

    #[test]
    fn a_device_that_is_ten_times_slower_for_five_seconds_is_slow_until_it_is_not_for_five() {
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

    /// What a disk does in 0.1 ms if it comes in order takes it 15 ms if it does not.
    #[test]
    fn another_load_makes_no_device_slow() {
        let speed = Speed::default();
        (0..100).for_each(|_| assert!(!second(&speed, DISK, 1000, 0, 1)));
        (0..100).for_each(|_| assert!(!second(&speed, DISK, 1000, 1, 10)));
        assert!((0..100).all(|_| !second(&speed, DISK, 60, 15, 1)));
    }

    #[test]
    fn four_slow_seconds_and_a_fast_one_are_no_reason() {
        let speed = with_history();
        for _ in 0..10 {
            assert!((0..4).all(|_| !second(&speed, DISK, 10, 200, 1)));
            assert!(!second(&speed, DISK, 10, 8, 1));
        }
    }

    /// Requests of a device that takes more than a second for each end in every other second only.
    #[test]
    fn seconds_in_which_nothing_ended_count_for_nothing() {
        let speed = with_history();
        for _ in 0..4 {
            assert!(!second(&speed, DISK, 1, 1500, 1));
            assert!(!second(&speed, DISK, 0, 0, 1));
        }
        assert!(second(&speed, DISK, 1, 1500, 1) && speed.is_slow());
    }

    #[test]
    fn a_device_without_a_history_is_not_judged() {
        let speed = Speed::default();
        assert!((0..3).all(|_| !second(&speed, DISK, 20, 1000, 1)));
        assert!(!speed.is_slow());
    }
}
