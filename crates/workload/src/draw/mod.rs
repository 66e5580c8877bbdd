//! Random numbers by distribution, the same on every machine.
//!
//! [`ln`] and [`exp`] are implemented here. The functions of the standard library come from the platform.
//! Their last digit differs between platforms, and one digit can change a request.

mod real;
mod scatter;
mod sizes;
mod zipf;

pub(crate) use real::{exp, ln};
pub(crate) use scatter::Scatter;
pub(crate) use sizes::Sizes;
pub(crate) use zipf::Zipf;

use braid_base::Rng;

/// Draws from the exponential distribution with the given mean. The result is at most about 37 times the
/// mean.
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * ln(1.0 - rng.unit())
}

/// Draws from the standard normal distribution, by Marsaglia's polar method. The method's second number is
/// unused.
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    loop {
        let (x, y) = (2.0 * rng.unit() - 1.0, 2.0 * rng.unit() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

/// Draws from the Pareto distribution above `low` with the given index, cut at `high`.
pub(crate) fn pareto(rng: &mut Rng, low: f64, index: f64, high: f64) -> f64 {
    (low * exp(-ln(1.0 - rng.unit()) / index)).min(high)
}
