//! Burstiness of arrivals by entropy, as in Xiao et al., "PASS: A Hybrid Storage System for
//! Performance-Synchronization Tradeoffs Using SSDs", section V-C and figure 5. The entropy plot comes from
//! Wang, Ailamaki, Faloutsos, "Capturing the spatio-temporal behavior of real traffic data" (Performance
//! Evaluation 49, 2002).
//!
//! The time from the first to the last request is divided into 2^k bins of equal length. With p_i the share
//! of requests in bin i, H(k) = -sum p_i log2 p_i, in bits. Uniform arrivals give H(k) = k, a single burst 0.
//! So the slope of H over k is between 1 (uniform) and 0 (a single burst): burstier arrivals have a smaller
//! slope. The slope here is a least-squares fit from k = 0 to log2 of the number of requests, at most 21 (the
//! largest k of figure 5). Beyond, there are more bins than requests, and H cannot grow.
//!
//! Exact for up to a million requests. For more requests, see `arrivals.rs`: up to k = 18, a bin holds 32 or
//! more fine bins, and the error is invisible in the plot. At k = 21, a bin holds 4 to 8 fine bins.

use super::arrivals::Arrivals;
use braid_base::Nanos;

/// Burstiness of arrivals.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Burstiness {
    /// Slope of the entropy over the base-2 logarithm of the number of bins: 1 is uniform, 0 a single burst.
    pub entropy_slope: f64,
    /// Largest k used for the slope.
    pub entropy_slope_k_max: u32,
    /// Entropy in bits with 2^k bins, for k = 0, 1, 2 and so on.
    pub entropy_bits: Vec<f64>,
}

const LARGEST_K: u32 = 21;

/// Counts the arrival times of requests.
#[derive(Default)]
pub struct Counting {
    arrivals: Arrivals,
    requests: u64,
}

impl Counting {
    /// Adds a request. Times must not decrease.
    pub fn add(&mut self, at: Nanos) {
        self.arrivals.add(at.0);
        self.requests += 1;
    }

    /// Returns the burstiness of the requests so far.
    pub fn finish(&self) -> Burstiness {
        if self.requests == 0 {
            return Burstiness { entropy_slope: 0.0, entropy_slope_k_max: 0, entropy_bits: Vec::new() };
        }
        let mut bins = self.arrivals.bins(LARGEST_K);
        let mut entropy_bits = vec![entropy(&bins, self.requests)];
        for _ in 0..LARGEST_K {
            bins.iter_mut().for_each(|(bin, _)| *bin /= 2);
            bins.dedup_by(|second, first| {
                let same = first.0 == second.0;
                first.1 += if same { second.1 } else { 0 };
                same
            });
            entropy_bits.push(entropy(&bins, self.requests));
        }
        entropy_bits.reverse();
        let largest = self.requests.ilog2().min(LARGEST_K);
        let entropy_slope = slope(&entropy_bits[..=largest as usize]);
        Burstiness { entropy_slope, entropy_slope_k_max: largest, entropy_bits }
    }
}

fn entropy(bins: &[(u32, u64)], requests: u64) -> f64 {
    let term = |&(_, count): &(u32, u64)| {
        let p = count as f64 / requests as f64;
        -p * p.log2()
    };
    // Adding zero turns the minus zero of a single burst into zero.
    bins.iter().map(term).sum::<f64>() + 0.0
}

/// Returns the slope of the least-squares line through the values at 0, 1, 2 ….
fn slope(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let (mut above, mut below) = (0.0, 0.0);
    for (x, y) in values.iter().enumerate() {
        above += (x as f64 - mean_x) * (y - mean_y);
        below += (x as f64 - mean_x).powi(2);
    }
    if below > 0.0 { above / below } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    fn of(times: impl Iterator<Item = u64>) -> Burstiness {
        let mut counting = Counting::default();
        times.for_each(|at| counting.add(Nanos(at)));
        counting.finish()
    }

    #[test]
    fn uniform_arrivals_have_slope_one_and_bursts_have_zero() {
        let uniform = of((0..65_536).map(|n| n * 1_000_003));
        assert!((uniform.entropy_slope - 1.0).abs() < 0.01, "{}", uniform.entropy_slope);
        assert_eq!(uniform.entropy_bits.len(), 22);
        for (k, entropy) in uniform.entropy_bits.iter().enumerate().take(16) {
            assert!((entropy - k as f64).abs() < 0.01, "H({k}) = {entropy}");
        }
        let burst = of((0..1000).map(|_| 7));
        assert_eq!((burst.entropy_slope, burst.entropy_bits[21]), (0.0, 0.0));
    }

    #[test]
    fn uneven_cascade_has_the_theoretical_entropy_slope() {
        // The b-model of Wang et al.: recursively, one half of each interval gets the share b of the
        // requests. The slope is the entropy of (b, 1 - b): for 0.8, 0.722 bits.
        let mut rng = Rng::new(9);
        let mut times: Vec<u64> = (0..400_000)
            .map(|_| (0..36).fold(0, |time, _| time << 1 | u64::from(rng.chance(0.2))))
            .chain([0, (1 << 36) - 1])
            .collect();
        times.sort_unstable();
        let found = of(times.into_iter());
        let upper = slope(&found.entropy_bits[..=12]);
        assert!((upper - 0.7219).abs() < 0.01, "{upper}");
    }

    #[test]
    fn fewer_than_two_requests_have_no_burstiness() {
        assert_eq!(of(std::iter::empty()).entropy_bits, []);
        assert_eq!(of(std::iter::once(0)).entropy_slope, 0.0);
        assert!(of([0, u64::MAX].into_iter()).entropy_bits[1] > 0.99);
    }
}
