//! How much longer devices take than [`Speed`](super::demand::Speed) says, by load and by nature.

use super::demand::{Times, class};
use braid_base::DeviceClass;

/// The sum of what requests took over the sum of what they were expected to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slowness {
    expected: f64,
    took: f64,
    /// Until so much was expected, the rest is guessed to take as long as expected.
    guessed: f64,
    /// So many of the last requests count.
    remembered: f64,
    /// Requests of late.
    recent: f64,
}

impl Slowness {
    /// Of the last `remembered` requests, and until they should take `guessed` milliseconds, of a guess.
    pub fn new(guessed: f64, remembered: f64) -> Slowness {
        Slowness { expected: 0.0, took: 0.0, guessed, remembered, recent: 0.0 }
    }

    /// Time passes, which leaves this part of what counts by time. As many requests count as came of late,
    /// and at least `least`: of a fast load, too, what a device did for a moment is not all that is known.
    pub fn pass(&mut self, left: f64, least: f64) {
        self.recent *= left;
        self.remembered = self.recent.max(least);
    }

    /// A request begins.
    pub fn expect(&mut self, ms: f64) {
        self.recent += 1.0;
        self.expected += ms - self.expected / self.remembered;
        self.took -= self.took / self.remembered;
    }

    /// A request has ended.
    pub fn took(&mut self, ms: f64) {
        self.took += ms;
    }

    pub fn factor(&self) -> f64 {
        let guess = (self.guessed - self.expected).max(0.0);
        ((self.took + guess) / (self.expected + guess).max(f64::MIN_POSITIVE)).clamp(0.01, 1000.0)
    }
}

/// How many requests a request of a guest meets on a device, on average.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    length: f64,
    /// Requests that the average is of.
    requests: f64,
}

impl Queue {
    /// A request begins. The average is of the last `most`.
    pub fn meets(&mut self, in_flight: u32, most: f64) {
        self.requests = (self.requests + 1.0).min(most);
        self.length += (f64::from(in_flight) - self.length) / self.requests;
    }

    pub fn length(&self) -> f64 {
        self.length
    }
}

/// What a demand costs on a device of a class with this slowness, in milliseconds a second.
pub(super) fn cost(demand: &Times, of: DeviceClass, slowness: &[Slowness; 2]) -> f64 {
    let times = demand[class(of)].iter().zip(slowness);
    times.map(|(&time, slowness)| f64::from(time) * slowness.factor()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(slowness: &mut Slowness, requests: u32, should: f64, took: f64) {
        for _ in 0..requests {
            slowness.expect(should);
            slowness.took(took);
        }
    }

    #[test]
    fn a_guess_counts_only_until_enough_is_measured() {
        let mut slowness = Slowness::new(128.0, 8192.0);
        assert_eq!(slowness.factor(), 1.0);
        serve(&mut slowness, 8, 8.0, 0.8);
        assert!((slowness.factor() - 0.55).abs() < 0.01, "half is measured: {}", slowness.factor());
        serve(&mut slowness, 8, 8.0, 0.8);
        assert!((slowness.factor() - 0.1).abs() < 0.001, "all is: {}", slowness.factor());
    }

    /// 10,000 requests in half a second: more than are counted of a slow load.
    #[test]
    fn half_a_second_of_a_fast_load_is_a_part_of_what_counts() {
        let left = (-0.5_f64 / 16.0).exp();
        let mut slowness = Slowness::new(1.0, 8192.0);
        for _ in 0..100 {
            serve(&mut slowness, 10_000, 1.0, 0.1);
            slowness.pass(left, 8192.0);
        }
        serve(&mut slowness, 10_000, 1.0, 1.0);
        assert!((0.1..0.2).contains(&slowness.factor()), "{}", slowness.factor());
    }

    #[test]
    fn a_queue_is_what_requests_meet() {
        let mut queue = Queue::default();
        [0, 0, 0, 8].into_iter().for_each(|in_flight| queue.meets(in_flight, 8192.0));
        assert_eq!(queue.length(), 2.0);
    }
}
