//! Calibration: the fraction of an extent's past demand that comes true.

use super::{Constants, Equi, demand};
use braid_base::{ExtentId, Nanos};

/// Expected and actual demand, by size of the expected demand. Demands within a factor of 2 share an entry.
#[derive(Clone, Debug)]
pub(super) struct Calibration {
    /// Milliseconds expected, and milliseconds arrived, for each exponent of a demand.
    sums: Vec<[f64; 2]>,
    /// Weight that one comparison leaves to the earlier comparisons.
    left: f64,
    /// Largest factor by which a demand is expected to grow.
    most: f64,
    /// Weight of the guess that all of a demand comes true, in seconds of the demand.
    guessed: f64,
}

fn exponent(rate: f32) -> usize {
    usize::from((rate.to_bits() >> (f32::MANTISSA_DIGITS - 1)) as u8)
}

impl Calibration {
    pub fn new(constants: &Constants) -> Calibration {
        Calibration {
            sums: vec![[0.0; 2]; 1 << u8::BITS],
            left: 1.0 - 1.0 / constants.short,
            most: constants.margin,
            guessed: constants.guessed * constants.horizon.as_secs_f64(),
        }
    }

    /// Records that an extent with an expected demand of `rate` milliseconds a second got `came` milliseconds
    /// in `seconds`.
    fn compare(&mut self, rate: f32, seconds: f64, came: f32) {
        let sums = &mut self.sums[exponent(rate)];
        *sums = [sums[0] * self.left + f64::from(rate) * seconds, sums[1] * self.left + f64::from(came)];
    }

    /// Returns the fraction of a demand of `rate` that comes true over a horizon.
    pub fn factor(&self, rate: f32) -> f64 {
        let ([expected, came], guessed) = (self.sums[exponent(rate)], f64::from(rate) * self.guessed);
        ((came + guessed) / (expected + guessed).max(f64::MIN_POSITIVE)).min(self.most)
    }
}

/// Returns how long before first sight the comparison of an extent begins. Phases are spread evenly:
/// otherwise moves would be planned at a single instant of a demand's decay.
fn phase(extent: ExtentId, horizon: Nanos) -> Nanos {
    Nanos(((u128::from(horizon.0) * u128::from(extent.0.reverse_bits())) >> u32::BITS) as u64)
}

impl Equi {
    /// Compares the demand expected one horizon ago with the demand since, for each known extent.
    pub(super) fn settle(&mut self, now: Nanos) {
        let Constants { memory, horizon, .. } = self.constants;
        let (groups, group, calibration) = (&self.groups, self.constants.group(), &mut self.calibration);
        self.known.change_values(|extent, known| {
            let since = *known.since.get_or_insert_with(|| now.saturating_sub(phase(extent, horizon)));
            let passed = now.saturating_sub(since);
            if passed < horizon {
                return;
            }
            if let Some(expected) = known.expected {
                calibration.compare(expected, passed.as_secs_f64(), known.came);
            }
            let of_all = groups.value(extent.0 / group).unwrap_or_default().at(now, memory);
            let demand = demand::lent(known.at(now, memory), of_all, group);
            (known.expected, known.came, known.since) = (Some(demand::of_disk(&demand)), 0.0, Some(now));
        });
    }
}
