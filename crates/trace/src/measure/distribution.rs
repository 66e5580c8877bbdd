//! A distribution of numbers of any magnitude in bounded memory. Exact below 128, then 128 steps for each
//! power of two: an error of at most 0.8 %, and none at powers of two.

use super::share;

const STEPS: u64 = 128;
const STEPS_LOG: u32 = 7;

/// Weight of the numbers in each step.
#[derive(Clone, Debug, Default)]
pub(super) struct Distribution {
    counts: Vec<u64>,
    total: u64,
}

/// One power of two of a distribution.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Bucket {
    /// Upper bound (exclusive); the lower bound is the upper bound of the bucket before.
    pub below_bytes: u64,
    /// Share of all numbers.
    pub share: f64,
}

impl Distribution {
    pub(super) fn add(&mut self, value: u64, weight: u64) {
        let step = step(value);
        if step >= self.counts.len() {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += weight;
        self.total += weight;
    }

    /// Returns the sum of all weights.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the weight of numbers below `limit`. `limit` must be a power of two, plus zero to three
    /// quarters of itself.
    pub(super) fn below(&self, limit: u64) -> u64 {
        self.counts.iter().take(step(limit)).sum()
    }

    /// Returns the percentile, with the precision of a step. Zero if the distribution is empty.
    pub(super) fn percentile(&self, percent: u64) -> u64 {
        let mut left = (u128::from(self.total) * u128::from(percent)).div_ceil(100).max(1) as u64;
        let reached = self.counts.iter().position(|&count| {
            left = left.saturating_sub(count);
            left == 0
        });
        reached.map_or(0, lowest)
    }

    /// Returns the buckets by powers of two, as numbers of `unit` bytes. Empty buckets at both ends are left
    /// out.
    pub(super) fn buckets(&self, unit: u64) -> Vec<Bucket> {
        let bounds = (0..63).map(|power| 1u64 << power);
        let mut before = 0;
        let mut buckets = Vec::new();
        for bound in bounds {
            let below = self.below(bound);
            if below > before || (!buckets.is_empty() && before < self.total) {
                let part = share(below - before, self.total);
                buckets.push(Bucket { below_bytes: bound.saturating_mul(unit), share: part });
            }
            before = below;
        }
        buckets
    }
}

fn step(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = value.ilog2();
    let fine = value >> (power - STEPS_LOG) & (STEPS - 1);
    (u64::from(power - STEPS_LOG + 1) * STEPS + fine) as usize
}

fn lowest(step: usize) -> u64 {
    let (power, fine) = (step as u64 / STEPS, step as u64 % STEPS);
    if power == 0 { fine } else { (STEPS + fine) << (power - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_rounds_values_down_within_resolution() {
        for value in (0..100_000).chain([1 << 40, (1 << 40) + 12_345, u64::MAX]) {
            let low = lowest(step(value));
            assert!(low <= value && value - low <= value / STEPS, "{value}: {low}");
        }
        for power in 0..63 {
            assert_eq!(lowest(step(1 << power)), 1 << power);
        }
    }

    #[test]
    fn percentiles_and_buckets_add_up() {
        let mut distribution = Distribution::default();
        (0..1000).for_each(|value| distribution.add(value, 2));
        assert_eq!((distribution.percentile(50), distribution.below(256)), (498, 512));
        let shares: f64 = distribution.buckets(4096).iter().map(|bucket| bucket.share).sum();
        assert!((shares - 1.0).abs() < 1e-9);
        assert_eq!(Distribution::default().percentile(50), 0);
        assert!(Distribution::default().buckets(1).is_empty());
    }
}
