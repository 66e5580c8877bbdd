//! How much longer devices take than [`Speed`] says, by load and by nature.

use super::demand::{Speed, Times, class};
use braid_base::DeviceClass;

/// What guests wait for a move on a device that nobody waits for: something may come.
pub(super) const IDLE: f64 = 0.1;

/// So many requests are remembered: long, so that what bursts do is not forgotten between them.
const REMEMBERED: f64 = 8192.0;
/// The guess that a device is as fast as its class counts as so many.
const GUESSED: f64 = 32.0;
/// So many probes are remembered.
const PROBES_REMEMBERED: f64 = 32.0;

/// The sum of what requests took over the sum of what they were expected to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slowness {
    expected: f64,
    took: f64,
    remembered: f64,
}

impl Slowness {
    pub fn new(class: DeviceClass) -> Slowness {
        Slowness::remembering(class, REMEMBERED)
    }

    /// That of so many requests.
    pub fn remembering(class: DeviceClass, remembered: f64) -> Slowness {
        let guessed = Speed::of(class).position_ms * GUESSED;
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

    /// A probe has told: there is one where there are no requests, so it counts for many.
    pub fn probed(&mut self, expected: f64, took: f64) {
        let left = 1.0 - 1.0 / PROBES_REMEMBERED;
        self.expected = self.expected * left + expected;
        self.took = self.took * left + took;
    }

    pub fn factor(&self) -> f64 {
        (self.took / self.expected.max(1e-9)).clamp(0.01, 1000.0)
    }
}

/// What a demand costs on a device of a class with this slowness, in milliseconds a second.
pub(super) fn cost(demand: &Times, of: DeviceClass, slowness: &[Slowness; 2]) -> f64 {
    let times = demand[class(of)].iter().zip(slowness);
    times.map(|(&time, slowness)| f64::from(time) * slowness.factor()).sum()
}
