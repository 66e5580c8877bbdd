//! How much longer devices take than [`Speed`](super::demand::Speed) says, by load and by nature.

use super::demand::{Times, class};
use braid_base::DeviceClass;

/// The sum of what requests took over the sum of what they were expected to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slowness {
    expected: f64,
    took: f64,
    /// Requests.
    remembered: f64,
}

impl Slowness {
    /// Of the last `remembered` requests, with the guess that they took `guessed` milliseconds, as expected.
    pub fn new(guessed: f64, remembered: f64) -> Slowness {
        Slowness { expected: guessed, took: guessed, remembered }
    }

    /// A request begins.
    pub fn expect(&mut self, ms: f64) {
        self.expected += ms - self.expected / self.remembered;
        self.took -= self.took / self.remembered;
    }

    /// A request has ended.
    pub fn took(&mut self, ms: f64) {
        self.took += ms;
    }

    pub fn factor(&self) -> f64 {
        (self.took / self.expected.max(f64::MIN_POSITIVE)).clamp(0.01, 1000.0)
    }
}

/// What a demand costs on a device of a class with this slowness, in milliseconds a second.
pub(super) fn cost(demand: &Times, of: DeviceClass, slowness: &[Slowness; 2]) -> f64 {
    let times = demand[class(of)].iter().zip(slowness);
    times.map(|(&time, slowness)| f64::from(time) * slowness.factor()).sum()
}
