//! Test for whether a switch of modes pays: a cumulative sum (CUSUM), the usual test for change.
//!
//! For each other mode the sum adds up the factor by which its ghost was faster than the present mode's, as a
//! logarithm, times the seconds. A small part is subtracted each second, and no sum falls below zero. Twice
//! as fast for 23 s is enough, or 1.2 times for two minutes. A mode that is faster by less than the
//! subtracted part is never chosen.

use braid_base::Nanos;

/// For each mode: seconds, times the logarithm of the factor by which the mode was faster than the present
/// mode.
pub(super) struct Evidence(Vec<f64>);

/// Evidence needed for a switch: a switch moves data while guests wait. On 26 unseen loads, half this value
/// made the mean 1.03 ± 0.06 times as long, and the worst 1.7 times. On 60 loads, twice this value made the
/// mean 1.04 times as long.
const ENOUGH: f64 = 15.0;
/// Subtracted for each second: ghosts of similar modes differ by a few per cent.
const SLACK: f64 = 0.05;

impl Evidence {
    pub fn of(modes: usize) -> Evidence {
        Evidence(vec![0.0; modes])
    }

    /// Adds `time` in which each mode's requests took these means, if known. Returns the mode to switch to,
    /// if it is time; all sums are then reset, because no mode has been compared with the new mode. If the
    /// present mode's mean is unknown, nothing is added.
    pub fn add(&mut self, time: Nanos, means: &[Option<f64>], present: usize) -> Option<usize> {
        let now = means[present]?;
        for (sum, mean) in self.0.iter_mut().zip(means) {
            let gain = mean.map_or(f64::NEG_INFINITY, |mean| (now / mean).ln() - SLACK);
            *sum = (*sum + gain * time.as_secs_f64()).max(0.0);
        }
        let (best, sum) = self.0.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        if sum < ENOUGH {
            return None;
        }
        self.0.fill(0.0);
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of batches of 5 s before a switch, and the new mode.
    fn switch(means: impl Fn(usize) -> Vec<Option<f64>>) -> Option<(usize, usize)> {
        let mut evidence = Evidence::of(means(0).len());
        (1..1000).find_map(|batch| {
            let to = evidence.add(Nanos::from_secs(5), &means(batch), 0)?;
            Some((batch, to))
        })
    }

    #[test]
    fn larger_gain_switches_mode_sooner() {
        assert_eq!(switch(|_| vec![Some(2.0), Some(1.0), Some(1.5)]), Some((5, 1)));
        assert_eq!(switch(|_| vec![Some(1.2), Some(1.3), Some(1.0)]), Some((23, 2)));
        assert_eq!(switch(|_| vec![Some(1.04), Some(1.0)]), None);
    }

    /// A mode that moves much at first and is the best afterwards is kept.
    #[test]
    fn early_loss_with_later_gain_keeps_the_mode() {
        let invests = |batch: usize| vec![Some(if batch < 4 { 2.0 } else { 0.5 }), Some(1.0)];
        assert_eq!(switch(invests), None);
    }

    #[test]
    fn switch_needs_figures_of_both_modes() {
        assert_eq!(switch(|_| vec![Some(9.0), None]), None);
        assert_eq!(switch(|_| vec![None, Some(1.0)]), None);
    }
}
