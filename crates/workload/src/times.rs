//! Arrival times: a Poisson process. Its rate may follow the time of day and may have bursts.

use crate::draw::exponential;
use braid_base::{Nanos, Rng};

/// Generator of arrival times, in order. Times never decrease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Mean time between arrivals at the full rate, in nanoseconds.
    gap: f64,
    day: Option<Day>,
    bursts: Option<Bursts>,
    /// Rate factor of a burst; 1 without bursts. Not read from `bursts`: the product is computed in any case,
    /// and a product with the undefined content of an absent `Bursts` can cost as much time as a whole
    /// request.
    burst_factor: f64,
    /// Present time in nanoseconds, with fractions.
    now: f64,
    is_burst: bool,
    /// End of the present burst or calm.
    until: f64,
}

/// A rate that rises from its lowest value at the start of each day to its peak at noon, and falls again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Day {
    /// Length of a day, in nanoseconds.
    pub length: f64,
    /// Lowest rate as a share of the peak, above 0.
    pub low: f64,
}

/// Alternating calm and bursts, of exponentially distributed lengths: a two-state Markov-modulated Poisson
/// process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bursts {
    /// Mean lengths, in nanoseconds.
    pub calm: f64,
    pub burst: f64,
    /// Rate of a burst as a multiple of the calm rate.
    pub factor: f64,
}

impl Times {
    /// Creates a generator of `rate` arrivals per second on average. With a day, `rate` is the peak.
    pub fn new(rate: f64) -> Times {
        Times {
            gap: 1e9 / rate,
            day: None,
            bursts: None,
            burst_factor: 1.0,
            now: 0.0,
            is_burst: true,
            until: 0.0,
        }
    }

    /// Adds a day: the rate becomes the peak of the day.
    pub fn with_day(self, day: Day) -> Times {
        Times { day: Some(day), ..self }
    }

    /// Adds bursts, with the same mean rate.
    pub fn with_bursts(self, bursts: Bursts) -> Times {
        let mean = (bursts.calm + bursts.burst * bursts.factor) / (bursts.calm + bursts.burst);
        Times { bursts: Some(bursts), burst_factor: bursts.factor, gap: self.gap * mean, ..self }
    }

    /// Draws the time of the next arrival.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng) -> Nanos {
        let mut gap = exponential(rng, self.gap / self.factor());
        while let Some(bursts) = self.bursts
            && self.now + gap >= self.until
        {
            // The rest of the gap is drawn again at the new rate: a Poisson process has no memory.
            self.now = self.until;
            self.is_burst = !self.is_burst;
            self.until += exponential(rng, if self.is_burst { bursts.burst } else { bursts.calm });
            gap = exponential(rng, self.gap / self.factor());
        }
        self.now += gap;
        Nanos(self.now as u64)
    }

    /// Returns the present rate as a multiple of the rate 1 / `gap`.
    fn factor(&self) -> f64 {
        let day = self.day.map_or(1.0, |day| day.factor(self.now));
        if self.is_burst { day * self.burst_factor } else { day }
    }
}

impl Day {
    /// Returns the rate at `now` as a share of the peak: a smooth step up, 3x² − 2x³, and a symmetric step
    /// down. The mean lies half-way between the lowest rate and the peak.
    fn factor(&self, now: f64) -> f64 {
        let phase = now / self.length;
        let phase = phase - (phase as u64) as f64;
        let x = if phase < 0.5 { 2.0 * phase } else { 2.0 - 2.0 * phase };
        self.low + (1.0 - self.low) * x * x * (3.0 - 2.0 * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of arrivals in each of the first seconds.
    fn counts(mut times: Times, seconds: usize) -> Vec<f64> {
        let (mut counts, mut rng) = (vec![0.0; seconds], Rng::new(1));
        loop {
            let second = (times.next(&mut rng).0 / 1_000_000_000) as usize;
            match counts.get_mut(second) {
                Some(count) => *count += 1.0,
                None => return counts,
            }
        }
    }

    /// Mean, and variance as a share of the mean: 1 for a Poisson process.
    fn mean_and_dispersion(counts: &[f64]) -> (f64, f64) {
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        (mean, counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n / mean)
    }

    #[test]
    fn a_plain_rate_is_a_poisson_process() {
        let (mean, dispersion) = mean_and_dispersion(&counts(Times::new(50.0), 20_000));
        assert!((mean / 50.0 - 1.0).abs() < 0.01 && (dispersion - 1.0).abs() < 0.05, "{mean}, {dispersion}");
    }

    #[test]
    fn bursts_keep_the_mean_rate_and_spread_the_counts() {
        let bursts = Bursts { calm: 9e9, burst: 1e9, factor: 8.0 };
        let (mean, dispersion) = mean_and_dispersion(&counts(Times::new(50.0).with_bursts(bursts), 100_000));
        assert!((mean / 50.0 - 1.0).abs() < 0.03 && dispersion > 10.0, "{mean}, {dispersion}");
    }

    #[test]
    fn a_day_is_quiet_at_both_ends_and_busy_at_noon() {
        let times = Times::new(1000.0).with_day(Day { length: 1000e9, low: 0.2 });
        let counts = counts(times, 2000);
        let mean =
            |range: std::ops::Range<usize>| counts[range.clone()].iter().sum::<f64>() / range.len() as f64;
        assert!((mean(0..20) / 200.0 - 1.0).abs() < 0.1, "{}", mean(0..20));
        assert!((mean(490..510) / 1000.0 - 1.0).abs() < 0.05, "{}", mean(490..510));
        assert!((mean(990..1010) / 200.0 - 1.0).abs() < 0.1, "{}", mean(990..1010));
        assert!((mean(0..2000) / 600.0 - 1.0).abs() < 0.02, "{}", mean(0..2000));
    }
}
