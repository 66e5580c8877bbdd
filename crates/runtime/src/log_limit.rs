//! Limit for log lines of a repeated event: a failing device fails thousands of times a second, and a single
//! line says as much as thousands.

use braid_base::Nanos;
use std::cell::Cell;

/// Admits the first of many events, then one per interval, and counts the events held back.
pub struct LogLimit {
    interval: Nanos,
    next: Cell<Nanos>,
    held_back: Cell<u64>,
}

impl LogLimit {
    /// Lets an event through at most every `interval`.
    pub const fn new(interval: Nanos) -> LogLimit {
        LogLimit { interval, next: Cell::new(Nanos::ZERO), held_back: Cell::new(0) }
    }

    /// Admits or holds back an event at `now`. Returns the number of events held back since the last admitted
    /// event, or none to stay silent.
    pub fn admit(&self, now: Nanos) -> Option<u64> {
        if now < self.next.get() {
            self.held_back.set(self.held_back.get() + 1);
            return None;
        }
        self.next.set(now + self.interval);
        Some(self.held_back.replace(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_event_is_logged_and_repeats_are_counted() {
        let limit = LogLimit::new(Nanos::from_secs(10));
        let told = [5, 6, 14, 15, 16, 60].map(|second| limit.admit(Nanos::from_secs(second)));
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
