//! Random numbers by distribution, the same on every machine.
//!
//! The logarithm and the exponential are our own: those of the standard library come from the platform, whose last digit
//! differs from one to the next, and one digit can become another request.

mod real;
mod scatter;
mod sizes;
mod zipf;

pub(crate) use real::{exp, ln};
pub(crate) use scatter::Scatter;
pub(crate) use sizes::Sizes;
pub(crate) use zipf::Zipf;

use braid_base::Rng;

/// From the exponential distribution of this mean. At most about 37 times the mean.
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * ln(1.0 - rng.unit())
}
