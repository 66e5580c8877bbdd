//! Estimate of one number from several seeds: a mean with a confidence interval.

use serde::Serialize;

/// 97.5 % quantiles of Student's distribution, from 1 degree of freedom on.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same quantile of the normal distribution, for more degrees of freedom.
const NORMAL: f64 = 1.96;

/// A mean over seeds, and the 95 % confidence interval around it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Lower end of the interval; the mean itself with one seed.
    pub low: f64,
    /// Upper end of the interval; the mean itself with one seed.
    pub high: f64,
}

impl Estimate {
    /// Estimate from one number for each seed, taken as independent and about normally distributed.
    pub fn of(numbers: &[f64]) -> Estimate {
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let freedom = numbers.len().saturating_sub(1);
        if freedom == 0 {
            return Estimate { mean, low: mean, high: mean };
        }
        let variance = numbers.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / freedom as f64;
        let half = STUDENT.get(freedom - 1).unwrap_or(&NORMAL) * (variance / count).sqrt();
        Estimate { mean, low: mean - half, high: mean + half }
    }

    /// Half the width of the interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn the_interval_contains_the_truth_about_19_times_in_20() {
        let mut rng = Rng::new(7);
        // The sum of twelve uniform numbers is nearly normal: mean 6, variance 1.
        let mut draw = || (0..12).map(|_| rng.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>();
        for seeds in [2, 5, 10, 40] {
            let hits = (0..2000)
                .filter(|_| {
                    let estimate = Estimate::of(&(0..seeds).map(|_| draw()).collect::<Vec<_>>());
                    estimate.low <= 6.0 && 6.0 <= estimate.high
                })
                .count();
            assert!((1870..=1930).contains(&hits), "{seeds} seeds: {hits} of 2000");
        }
    }

    #[test]
    fn estimate_of_one_seed_has_no_spread() {
        assert_eq!(Estimate::of(&[3.5]), Estimate { mean: 3.5, low: 3.5, high: 3.5 });
    }
}
