//! A time as it varies from one flash page to the next, or from those of one request to those of the next.

use braid_base::{Nanos, Rng};

/// A time as it varies from flash page to flash page: uniform within 5 % (assumed; the 990 PRO's 99th
/// percentile is 7 % above its mean, [review]).
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    least: Nanos,
    /// How many nanoseconds it can be.
    count: u64,
}

impl Spread {
    /// With this mean.
    pub fn around(time: Nanos) -> Spread {
        let twentieth = time.0 / 20;
        Spread { least: Nanos(time.0 - twentieth), count: 2 * twentieth + 1 }
    }

    /// With a time besides, which does not vary.
    pub fn and(self, time: Nanos) -> Spread {
        Spread { least: self.least + time, ..self }
    }

    /// One of them.
    pub fn draw(self, rng: &mut Rng) -> Nanos {
        self.least + Nanos(rng.below(self.count))
    }
}
