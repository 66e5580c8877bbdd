//! The rate at which the controller empties the write buffer, if slower than the flash.
//!
//! Only a time is stored: the end of all work given to the controller. The unfinished work is in the buffer,
//! in proportion to the remaining time. A byte leaves the buffer when both the controller and the flash are
//! done with the byte.

use crate::rate::Rate;
use braid_base::{Bytes, Nanos};

/// The controller's part in emptying the write buffer.
#[derive(Clone, Debug)]
pub struct Drain {
    /// `None` if only the flash bounds the rate.
    rate: Option<Rate>,
    buffer: Bytes,
    free: Nanos,
}

impl Drain {
    /// The drain of an empty buffer.
    pub fn new(rate: Option<Rate>, buffer: Bytes) -> Drain {
        Drain { rate, buffer, free: Nanos::ZERO }
    }

    /// The time when `len` bytes have room; for more than the buffer's size, the time when the buffer is
    /// empty.
    pub fn room_comes(&self, len: Bytes) -> Nanos {
        let rest = self.buffer.saturating_sub(len);
        self.rate.map_or(Nanos::ZERO, |rate| self.free.saturating_sub(rate.time_for(rest)))
    }

    /// The end of all work given to the controller.
    pub fn is_over(&self) -> Nanos {
        self.free
    }

    /// Adds a write at `now`.
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
    fn full_buffer_accepts_writes_at_drain_rate() {
        let rate = Rate::from_mb(64);
        let mut drain = Drain::new(Some(rate), KIB * 256);
        (0..4).for_each(|_| {
            assert_eq!(drain.room_comes(KIB * 64), Nanos::ZERO);
            drain.insert(KIB * 64, Nanos::ZERO);
        });
        let each = rate.time_for(KIB * 64);
        assert_eq!((drain.room_comes(KIB * 64), drain.is_over()), (each, each * 4));
        assert_eq!(drain.room_comes(MIB), drain.is_over(), "more than it holds has room once it is empty");
        // The drain was idle since.
        drain.insert(KIB * 64, each * 10);
        assert_eq!((drain.room_comes(KIB * 192), drain.is_over()), (each * 10, each * 11));
        let mut unbounded = Drain::new(None, KIB * 256);
        unbounded.insert(MIB, Nanos::ZERO);
        assert_eq!((unbounded.room_comes(MIB), unbounded.is_over()), (Nanos::ZERO, Nanos::ZERO));
    }
}
