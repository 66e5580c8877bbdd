//! Progress of the plan: moves left, and the rate of moves.

use crate::stats::Lately;
use braid_base::{Bytes, Nanos};
use std::cell::{Cell, RefCell};

/// The moves of the plan at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MovesStatus {
    /// Moves that have not ended.
    pub left: usize,
    /// Length of these moves in bytes.
    pub left_bytes: Bytes,
    /// Rate of moves in the last seconds, in bytes per second.
    pub bytes_per_second: f64,
}

/// Moves left in the plan, and bytes moved in the last seconds.
#[derive(Default)]
pub(crate) struct Progress {
    left: Cell<(usize, Bytes)>,
    lately: RefCell<Lately>,
}

impl Progress {
    /// Begins a plan with moves of these lengths.
    pub fn begin(&self, moves: impl Iterator<Item = Bytes>) {
        self.left.set(moves.fold((0, Bytes::ZERO), |(count, all), len| (count + 1, all + len)));
    }

    /// Ends a move of the plan; `moved` if the move was carried out.
    pub fn end(&self, len: Bytes, moved: bool, now: Nanos) {
        let (count, bytes) = self.left.get();
        self.left.set((count - 1, bytes - len));
        if moved {
            self.lately.borrow_mut().count(len, now);
        }
    }

    /// Returns the state of the plan.
    pub fn status(&self, now: Nanos) -> MovesStatus {
        let (left, left_bytes) = self.left.get();
        MovesStatus { left, left_bytes, bytes_per_second: self.lately.borrow().per_second(now) }
    }
}

impl MovesStatus {
    /// Returns the time for the rest at the current rate; `None` if nothing moved in the last seconds.
    pub fn seconds_left(&self) -> Option<f64> {
        match self.left {
            0 => Some(0.0),
            _ if self.bytes_per_second == 0.0 => None,
            _ => Some(self.left_bytes.0 as f64 / self.bytes_per_second),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;

    #[test]
    fn rate_of_recent_seconds_gives_time_left() {
        let progress = Progress::default();
        progress.begin([MIB; 100].into_iter());
        assert_eq!(progress.status(Nanos::ZERO).seconds_left(), None);
        for tenth in 0..60 {
            progress.end(MIB, tenth % 2 == 0, Nanos::from_secs(100) + Nanos::from_millis(tenth * 100));
        }
        let status = progress.status(Nanos::from_secs(106));
        assert_eq!((status.left, status.left_bytes), (40, MIB * 40));
        assert_eq!(status.bytes_per_second, (MIB * 5).0 as f64);
        assert_eq!(status.seconds_left(), Some(8.0));
        assert_eq!(progress.status(Nanos::from_secs(130)).bytes_per_second, 0.0);
        assert_eq!(progress.status(Nanos::from_secs(130)).seconds_left(), None);
    }
}
