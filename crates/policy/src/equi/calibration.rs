//! Which part of what extents were asked for lately they are asked for again.

use super::{Equi, GROUP};
use braid_base::Nanos;

/// Demands of about the same size: a bucket for each factor of 2, from a millionth of a millisecond a second.
const BUCKETS: usize = 32;
/// So many comparisons a bucket remembers.
const REMEMBERED: f64 = 1024.0;
/// The guess that all comes true counts as so many.
const GUESSED: f64 = 8.0;
/// No demand is believed to grow beyond this.
const MOST: f64 = 2.0;

/// No expectation yet.
const NOTHING: f32 = -1.0;
/// Spreads the numbers of extents evenly: 2^64 over the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What was expected, and what came, in milliseconds, by the size of what was expected.
#[derive(Clone, Debug, Default)]
pub(super) struct Calibration {
    expected: [f64; BUCKETS],
    came: [f64; BUCKETS],
}

impl Calibration {
    fn bucket(rate: f32) -> usize {
        ((rate.max(1e-9).log2() + 20.0) as i32).clamp(0, BUCKETS as i32 - 1) as usize
    }

    /// An extent was expected to be asked for `rate` milliseconds a second, and in so many seconds so much came.
    fn compare(&mut self, rate: f32, seconds: f64, came: f32) {
        let (bucket, left) = (Calibration::bucket(rate), 1.0 - 1.0 / REMEMBERED);
        self.expected[bucket] = self.expected[bucket] * left + f64::from(rate) * seconds;
        self.came[bucket] = self.came[bucket] * left + f64::from(came);
    }

    /// The part of such a demand that comes true, over `horizon`.
    pub fn factor(&self, rate: f32, horizon: Nanos) -> f64 {
        let bucket = Calibration::bucket(rate);
        let guessed = f64::from(rate) * horizon.as_secs_f64() * GUESSED;
        ((self.came[bucket] + guessed) / (self.expected[bucket] + guessed).max(1e-12)).min(MOST)
    }
}

impl Equi {
    /// Compares what was expected of extents one horizon ago with what came since.
    pub(super) fn settle(&mut self, now: Nanos) {
        let (memory, horizon) = (self.constants.memory, self.constants.horizon);
        let (groups, calibration) = (&self.groups, &mut self.calibration);
        self.known.change_values(|extent, known| {
            if known.since == Nanos::ZERO {
                // At any time after the first access alike: moves are not planned at one instant of a demand's decay alone.
                let phase = u64::from(extent.0).wrapping_mul(SPREAD) % horizon.0;
                (known.expected, known.since) = (NOTHING, now.saturating_sub(Nanos(phase)).max(Nanos(1)));
            }
            let passed = now.saturating_sub(known.since);
            if passed < horizon {
                return;
            }
            if known.expected != NOTHING {
                calibration.compare(known.expected, passed.as_secs_f64(), known.came);
            }
            let group = groups.value(extent.0 / GROUP).unwrap_or_default();
            let of_disk = |times: super::Times| times[0].iter().sum::<f32>();
            let (own, group) = (of_disk(known.at(now, memory)), of_disk(group.at(now, memory)));
            known.expected = (own + group / GROUP as f32) / 2.0;
            (known.came, known.since) = (0.0, now);
        });
    }
}
