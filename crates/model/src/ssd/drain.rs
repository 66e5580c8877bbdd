//! How fast the controller empties the write buffer, where that is slower than the flash.
//!
//! Only a time is kept: when the controller will be done with all that it has been given. What it is not yet
//! done with is in the buffer, in proportion to the time that is left. A byte leaves the buffer when both the
//! controller and the flash are done with it.

use crate::rate::Rate;
use braid_base::{Bytes, Nanos};

/// The controller's part in emptying the write buffer.
#[derive(Clone, Debug)]
pub struct Drain {
    /// None if only the flash bounds it.
    rate: Option<Rate>,
    buffer: Bytes,
    free: Nanos,
}

impl Drain {
    /// Of an empty buffer.
    pub fn new(rate: Option<Rate>, buffer: Bytes) -> Drain {
        Drain { rate, buffer, free: Nanos::ZERO }
    }

    /// When so many bytes have room; more than the buffer has room for, once it is empty.
    pub fn room_comes(&self, len: Bytes) -> Nanos {
        let rest = self.buffer.saturating_sub(len);
        self.rate.map_or(Nanos::ZERO, |rate| self.free.saturating_sub(rate.time_for(rest)))
    }

    /// When the controller is done with all that it has been given.
    pub fn is_over(&self) -> Nanos {
        self.free
    }

    /// Gives it a write at `now`.
    pub fn insert(&mut self, len: Bytes, now: Nanos) {
        if let Some(rate) = self.rate {
            self.free = self.free.max(now) + rate.time_for(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB};

    #[test]
    fn a_buffer_takes_what_it_holds_at_once_and_more_at_the_drains_rate() {
        let rate = Rate::from_mb(64);
        let mut drain = Drain::new(Some(rate), KIB * 256);
        (0..4).for_each(|_| {
            assert_eq!(drain.room_comes(KIB * 64), Nanos::ZERO);
            drain.insert(KIB * 64, Nanos::ZERO);
        });
        let each = rate.time_for(KIB * 64);
        assert_eq!((drain.room_comes(KIB * 64), drain.is_over()), (each, each * 4));
        assert_eq!(drain.room_comes(MIB), drain.is_over(), "more than it holds has room once it is empty");
        // It has rested since.
        drain.insert(KIB * 64, each * 10);
        assert_eq!((drain.room_comes(KIB * 192), drain.is_over()), (each * 10, each * 11));
        let mut unbounded = Drain::new(None, KIB * 256);
        unbounded.insert(MIB, Nanos::ZERO);
        assert_eq!((unbounded.room_comes(MIB), unbounded.is_over()), (Nanos::ZERO, Nanos::ZERO));
    }
}
