//! Progress of the plan: moves left, and the rate of moves.

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

/// Bytes moved in the last seconds.
#[derive(Default)]
pub(crate) struct Lately {
    /// Number of a second and its bytes, at the index of the second modulo the length. Entries older than the
    /// window do not count.
    seconds: [(u64, u64); WINDOW as usize],
    /// End of the first move.
    since: Option<Nanos>,
}

/// Seconds that give the rate, the current second included.
const WINDOW: u64 = 10;

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

impl Lately {
    /// Counts moved bytes.
    pub fn count(&mut self, len: Bytes, now: Nanos) {
        let second = now.0 / Nanos::from_secs(1).0;
        self.since.get_or_insert(now);
        let entry = &mut self.seconds[(second % WINDOW) as usize];
        *entry = (second, len.0 + if entry.0 == second { entry.1 } else { 0 });
    }

    /// Returns the rate in bytes per second.
    pub fn per_second(&self, now: Nanos) -> f64 {
        let second = now.0 / Nanos::from_secs(1).0;
        let first = (second + 1).saturating_sub(WINDOW);
        let bytes: u64 = self.seconds.iter().filter(|(s, _)| *s >= first).map(|(_, bytes)| bytes).sum();
        // At least one second: a first move that has just ended says little about the rate.
        let since = self.since.unwrap_or(now).max(Nanos::from_secs(first));
        let seconds = now.saturating_sub(since).as_secs_f64().max(1.0);
        bytes as f64 / seconds
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
