//! Request sizes by share.

use braid_base::{Bytes, Rng};

/// Distribution of a few sizes with given shares. Built from constants. A draw takes one comparison for each
/// size, common sizes first.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Upper bound of the cumulative share, as a fraction of 2^64, and the size.
    steps: Vec<(u64, Bytes)>,
}

impl Sizes {
    /// Creates the distribution from sizes with weights. Their sum must not be zero.
    pub fn new(weights: &[(Bytes, u64)]) -> Sizes {
        let mut sorted = weights.to_vec();
        sorted.sort_by_key(|&(_, weight)| std::cmp::Reverse(weight));
        let all: u64 = sorted.iter().map(|&(_, weight)| weight).sum();
        assert!(all > 0, "no size has a weight");
        let mut sum = 0;
        let steps = sorted.iter().map(|&(size, weight)| {
            sum += weight;
            let bound = (u128::from(u64::MAX) * u128::from(sum) / u128::from(all)) as u64;
            (bound, size)
        });
        Sizes { steps: steps.collect() }
    }

    /// Draws a size.
    pub fn draw(&self, rng: &mut Rng) -> Bytes {
        if let [(_, only)] = self.steps[..] {
            return only;
        }
        let drawn = rng.next_u64();
        let step = self.steps.iter().find(|(bound, _)| drawn <= *bound);
        step.map_or(self.steps[0].1, |&(_, size)| size)
    }
}
