//! Which part of what extents were asked for lately they are asked for again.

use super::{Constants, Equi, demand};
use braid_base::{ExtentId, Nanos};

/// What was expected, and what came, by the size of what was expected: demands within a factor of 2 are
/// alike.
#[derive(Clone, Debug)]
pub(super) struct Calibration {
    /// Milliseconds expected, and come, for each exponent of a demand.
    sums: Vec<[f64; 2]>,
    /// What one comparison leaves of those before.
    left: f64,
    /// Demands are not believed to grow by more than this factor.
    most: f64,
    /// The guess that all comes true counts as a demand of so many seconds.
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

    /// An extent was expected to be asked for `rate` milliseconds a second, and in so many seconds so much
    /// came.
    fn compare(&mut self, rate: f32, seconds: f64, came: f32) {
        let sums = &mut self.sums[exponent(rate)];
        *sums = [sums[0] * self.left + f64::from(rate) * seconds, sums[1] * self.left + f64::from(came)];
    }

    /// The part of such a demand that comes true over a horizon.
    pub fn factor(&self, rate: f32) -> f64 {
        let ([expected, came], guessed) = (self.sums[exponent(rate)], f64::from(rate) * self.guessed);
        ((came + guessed) / (expected + guessed).max(f64::MIN_POSITIVE)).min(self.most)
    }
}

/// How long before it is first seen an extent begins to be compared: spread evenly, so that moves are not
/// planned at one instant of a demand's decay alone.
fn phase(extent: ExtentId, horizon: Nanos) -> Nanos {
    Nanos(((u128::from(horizon.0) * u128::from(extent.0.reverse_bits())) >> u32::BITS) as u64)
}

impl Equi {
    /// Compares what was expected of extents one horizon ago with what came since.
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
