//! The variation of a time between flash pages, or between the pages of different requests.

use braid_base::{Nanos, Rng};

/// A varying time: uniform within 5 % (assumed; the 990 PRO's 99th percentile is 7 % above its mean,
/// [review]).
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    least: Nanos,
    /// Number of possible nanoseconds.
    count: u64,
}

impl Spread {
    /// A spread with mean `time`.
    pub fn around(time: Nanos) -> Spread {
        let twentieth = time.0 / 20;
        Spread { least: Nanos(time.0 - twentieth), count: 2 * twentieth + 1 }
    }

    /// The spread plus a constant time.
    pub fn and(self, time: Nanos) -> Spread {
        Spread { least: self.least + time, ..self }
    }

    /// Draws a time.
    pub fn draw(self, rng: &mut Rng) -> Nanos {
        self.least + Nanos(rng.below(self.count))
    }
}
