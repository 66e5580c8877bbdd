//! Zipf's law: item k of n items has a probability proportional to 1 / k^s.
//!
//! Exact, for any n and s, in constant memory: rejection-inversion, W. Hörmann and G. Derflinger,
//! "Rejection-Inversion to Generate Variates from Monotone Discrete Distributions", ACM TOMACS 6(3), 1996. H
//! is the integral of x^-s. The method inverts a uniform number under H and rounds the result to the nearest
//! rank. The rank is rejected if the number hit the area beside the histogram.

use super::{exp, ln};
use braid_base::Rng;

/// Distribution of ranks by Zipf's law.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    n: u64,
    s: f64,
    /// H(1½) − 1, and H(n + ½).
    low: f64,
    high: f64,
    /// 1 / (1 − s). `None` if s is so close to 1 that digits would be lost.
    root: Option<f64>,
    /// Below this distance from the rank, no rejection is possible.
    safe: f64,
}

impl Zipf {
    /// Creates the distribution over ranks `0..n` with exponent `s`: 0 is uniform, 1 is Zipf's original law.
    ///
    /// # Panics
    /// If `n` is zero or above 2^52, or `s` is not within 0 to 16.
    pub fn new(n: u64, s: f64) -> Zipf {
        assert!((1..=1 << 52).contains(&n) && (0.0..=16.0).contains(&s), "Zipf of {n} with exponent {s}");
        let root = ((1.0 - s).abs() > 1e-4).then(|| 1.0 / (1.0 - s));
        let mut zipf = Zipf { n, s, low: 0.0, high: 0.0, root, safe: 0.0 };
        zipf.low = zipf.area(1.5) - 1.0;
        zipf.high = zipf.area(n as f64 + 0.5);
        zipf.safe = 2.0 - zipf.inverse(zipf.area(2.5) - exp(-s * ln(2.0)));
        zipf
    }

    /// Draws a rank in `0..n`. Rank 0 is the most frequent.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(u);
            let k = ((x + 0.5) as u64).clamp(1, self.n) as f64;
            if k - x <= self.safe || u >= self.area(k + 0.5) - exp(-self.s * ln(k)) {
                return k as u64 - 1;
            }
        }
    }

    /// Returns the share of draws that fall on the first `m` ranks, with an error of about 1e-9.
    pub fn share_of_first(&self, m: u64) -> f64 {
        self.sum(m.min(self.n)) / self.sum(self.n)
    }

    /// Returns the exponent, at least 0, at which the first `part` (below 1) of `n` ranks get `share` of the
    /// draws.
    pub fn exponent_for(n: u64, part: f64, share: f64) -> f64 {
        let first = ((n as f64 * part).round() as u64).max(1);
        let (mut low, mut high) = (0.0, 16.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            match Zipf::new(n, middle).share_of_first(first) < share {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// Returns Σ k^-s for k = 1..=m: the first ranks one by one, the rest by the Euler–Maclaurin formula.
    fn sum(&self, m: u64) -> f64 {
        let power = |k: f64| exp(-self.s * ln(k));
        let head: f64 = (1..=m.min(ONE_BY_ONE)).map(|k| power(k as f64)).sum();
        if m <= ONE_BY_ONE {
            return head;
        }
        let (a, b) = (ONE_BY_ONE as f64, m as f64);
        let slope = |k: f64| -self.s * power(k) / k;
        head + (self.area(b) - self.area(a)) + (power(b) - power(a)) / 2.0 + (slope(b) - slope(a)) / 12.0
    }

    /// H: the integral of x^-s from 1 to x, (x^(1-s) − 1) / (1 − s), or ln x for s = 1.
    fn area(&self, x: f64) -> f64 {
        let log = ln(x);
        growth((1.0 - self.s) * log) * log
    }

    /// The inverse of H: (1 + area (1 − s))^(1 / (1 − s)), or e^area for s = 1.
    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.s)).max(-1.0 + 1e-15);
        match self.root {
            Some(root) => exp(ln(1.0 + t) * root),
            None => exp(relative_log(t) * area),
        }
    }
}

/// Ranks that [`Zipf::sum`] adds one by one.
const ONE_BY_ONE: u64 = 64;

/// (e^t − 1) / t, continued at 0.
fn growth(t: f64) -> f64 {
    match t.abs() < 1e-3 {
        true => 1.0 + t / 2.0 * (1.0 + t / 3.0 * (1.0 + t / 4.0)),
        false => (exp(t) - 1.0) / t,
    }
}

/// ln(1 + t) / t, continued at 0.
fn relative_log(t: f64) -> f64 {
    match t.abs() < 1e-3 {
        true => 1.0 - t * (1.0 / 2.0 - t * (1.0 / 3.0 - t * (1.0 / 4.0 - t / 5.0))),
        false => ln(1.0 + t) / t,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square of draws against the exact probabilities, in bins of at least 1 %.
    #[test]
    fn ranks_follow_the_law_for_every_exponent() {
        for s in [0.0, 0.5, 0.99, 1.0, 1.0001, 1.2, 2.0, 4.0] {
            let (n, draws) = (1000_u64, 200_000);
            let zipf = Zipf::new(n, s);
            let weight = |k: u64| ((k + 1) as f64).powf(-s);
            let all: f64 = (0..n).map(weight).sum();
            let mut counts = vec![0_u64; n as usize];
            let mut rng = Rng::new(5);
            (0..draws).for_each(|_| counts[zipf.draw(&mut rng) as usize] += 1);
            let (mut chi, mut bins, mut expected, mut seen) = (0.0, 0.0, 0.0, 0);
            for k in 0..n {
                expected += weight(k) / all * draws as f64;
                seen += counts[k as usize];
                if expected > draws as f64 / 100.0 {
                    chi += (seen as f64 - expected).powi(2) / expected;
                    (bins, expected, seen) = (bins + 1.0, 0.0, 0);
                }
            }
            assert!(chi < bins + 4.0 * (2.0_f64 * bins).sqrt() + 4.0, "s = {s}: {chi} over {bins} bins");
        }
    }

    #[test]
    fn zipf_shares_match_exact_sums() {
        for s in [0.0, 0.7, 1.0, 1.3] {
            let zipf = Zipf::new(100_000, s);
            let sum = |m: u64| (1..=m).map(|k| (k as f64).powf(-s)).sum::<f64>();
            let exact = sum(20_000) / sum(100_000);
            assert!((zipf.share_of_first(20_000) - exact).abs() < 1e-7, "s = {s}");
        }
    }

    #[test]
    fn an_exponent_is_found_for_a_share() {
        for share in [0.57, 0.84] {
            let s = Zipf::exponent_for(1_000_000, 0.2, share);
            let found = Zipf::new(1_000_000, s).share_of_first(200_000);
            assert!((found - share).abs() < 1e-6, "{share}: exponent {s} gives {found}");
        }
    }
}
