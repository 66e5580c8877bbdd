//! How far the plan is: what of it is left, and how fast moves go.

use braid_base::{Bytes, Nanos};
use std::cell::{Cell, RefCell};

/// The moves of the plan at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MovesStatus {
    /// Moves that have not ended.
    pub left: usize,
    /// The bytes that they concern.
    pub left_bytes: Bytes,
    /// Bytes moved in a second, of late.
    pub bytes_per_second: f64,
}

/// What of the plan is left, and what was moved in the last seconds.
#[derive(Default)]
pub(crate) struct Progress {
    left: Cell<(usize, Bytes)>,
    lately: RefCell<Lately>,
}

/// What was moved in the last seconds.
#[derive(Default)]
pub(crate) struct Lately {
    /// Bytes of a second, by its number modulo the length; a number that is too old counts nothing.
    seconds: [(u64, u64); WINDOW as usize],
    /// When the first move ended.
    since: Option<Nanos>,
}

/// So many seconds, the one that has begun included, give the rate.
const WINDOW: u64 = 10;

impl Progress {
    /// A plan with moves of these lengths begins.
    pub fn begin(&self, moves: impl Iterator<Item = Bytes>) {
        self.left.set(moves.fold((0, Bytes::ZERO), |(count, all), len| (count + 1, all + len)));
    }

    /// A move of the plan has ended; `moved` if it was carried out.
    pub fn end(&self, len: Bytes, moved: bool, now: Nanos) {
        let (count, bytes) = self.left.get();
        self.left.set((count - 1, bytes - len));
        if moved {
            self.lately.borrow_mut().count(len, now);
        }
    }

    /// The plan now.
    pub fn status(&self, now: Nanos) -> MovesStatus {
        let (left, left_bytes) = self.left.get();
        MovesStatus { left, left_bytes, bytes_per_second: self.lately.borrow().per_second(now) }
    }
}

impl Lately {
    /// So many bytes were moved.
    pub fn count(&mut self, len: Bytes, now: Nanos) {
        let second = now.0 / Nanos::from_secs(1).0;
        self.since.get_or_insert(now);
        let entry = &mut self.seconds[(second % WINDOW) as usize];
        *entry = (second, len.0 + if entry.0 == second { entry.1 } else { 0 });
    }

    /// Bytes moved in a second.
    pub fn per_second(&self, now: Nanos) -> f64 {
        let second = now.0 / Nanos::from_secs(1).0;
        let first = (second + 1).saturating_sub(WINDOW);
        let bytes: u64 = self.seconds.iter().filter(|(s, _)| *s >= first).map(|(_, bytes)| bytes).sum();
        // Where moves have only begun, a second at least: one that has just ended says little.
        let since = self.since.unwrap_or(now).max(Nanos::from_secs(first));
        let seconds = now.saturating_sub(since).as_secs_f64().max(1.0);
        bytes as f64 / seconds
    }
}

impl MovesStatus {
    /// How long the rest takes at this rate; none if nothing has moved of late.
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
    fn the_rate_is_that_of_the_last_ten_seconds_and_gives_the_time_left() {
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
