//! Utilisation of a device: the time with a request at the device.

use braid_base::Nanos;
use std::cell::Cell;

/// Time with at least one request of any origin at a device.
#[derive(Default)]
pub(crate) struct Busy {
    running: Cell<u32>,
    /// Start of the present time with a request.
    since: Cell<Nanos>,
    /// Earlier times together.
    before: Cell<Nanos>,
}

impl Busy {
    /// Notes the start of a request.
    #[inline]
    pub fn begin(&self, now: Nanos) {
        if self.running.replace(self.running.get() + 1) == 0 {
            self.since.set(now);
        }
    }

    /// Notes the end of a request.
    #[inline]
    pub fn end(&self, now: Nanos) {
        self.running.set(self.running.get() - 1);
        if self.running.get() == 0 {
            self.before.set(self.total(now));
            self.since.set(now);
        }
    }

    /// Time with a request until now, the present time included.
    #[inline]
    pub fn until(&self, now: Nanos) -> Nanos {
        if self.running.get() == 0 { self.before.get() } else { self.total(now) }
    }

    #[inline]
    fn total(&self, now: Nanos) -> Nanos {
        self.before.get() + now.saturating_sub(self.since.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_requests_count_once_and_the_running_one_counts() {
        let (busy, at) = (Busy::default(), Nanos::from_millis);
        assert_eq!(busy.until(at(5)), at(0));
        busy.begin(at(10));
        busy.begin(at(12));
        assert_eq!(busy.until(at(15)), at(5));
        busy.end(at(20));
        assert_eq!(busy.until(at(25)), at(15));
        busy.end(at(30));
        assert_eq!([busy.until(at(30)), busy.until(at(90))], [at(20); 2]);
        busy.begin(at(90));
        busy.end(at(91));
        assert_eq!(busy.until(at(100)), at(21));
    }
}
