//! Slowness: how much longer devices take than [`Speed`](super::demand::Speed) says, by load and by nature.

use super::demand::{Times, class};
use braid_base::DeviceClass;

/// Sum of actual times of requests over the sum of expected times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slowness {
    expected: f64,
    took: f64,
    /// Expected milliseconds until which the missing rest counts as a guess: actual time equal to expected
    /// time.
    guessed: f64,
    /// Number of recent requests that count.
    remembered: f64,
    /// Decayed number of recent requests.
    recent: f64,
}

impl Slowness {
    /// Creates a slowness over the last `remembered` requests. A guess fills up the first `guessed`
    /// milliseconds.
    pub fn new(guessed: f64, remembered: f64) -> Slowness {
        Slowness { expected: 0.0, took: 0.0, guessed, remembered, recent: 0.0 }
    }

    /// Lets time pass: the recent requests decay by the factor `left`. As many requests count as came
    /// recently, and at least `least`. Under a fast load, too, a device's behaviour of a moment is thus not
    /// the whole basis.
    pub fn pass(&mut self, left: f64, least: f64) {
        self.recent *= left;
        self.remembered = self.recent.max(least);
    }

    /// Records the start of a request.
    pub fn expect(&mut self, ms: f64) {
        self.recent += 1.0;
        self.expected += ms - self.expected / self.remembered;
        self.took -= self.took / self.remembered;
    }

    /// Records the end of a request.
    pub fn took(&mut self, ms: f64) {
        self.took += ms;
    }

    pub fn factor(&self) -> f64 {
        let guess = (self.guessed - self.expected).max(0.0);
        ((self.took + guess) / (self.expected + guess).max(f64::MIN_POSITIVE)).clamp(0.01, 1000.0)
    }
}

/// Average number of requests in flight on a device at the arrival of a guest's request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueLength {
    length: f64,
    /// Number of requests in the average.
    requests: f64,
}

impl QueueLength {
    /// Records the start of a request. The average covers the last `most` requests.
    pub fn meets(&mut self, in_flight: u32, most: f64) {
        self.requests = (self.requests + 1.0).min(most);
        self.length += (f64::from(in_flight) - self.length) / self.requests;
    }

    pub fn length(&self) -> f64 {
        self.length
    }
}

/// Returns the cost of a demand on a device of a class with this slowness, in milliseconds a second.
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

    /// 10,000 requests in half a second: more than count under a slow load.
    #[test]
    fn half_second_of_fast_load_shifts_factor_only_slightly() {
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
    fn queue_length_is_mean_in_flight_at_arrival() {
        let mut queue = QueueLength::default();
        [0, 0, 0, 8].into_iter().for_each(|in_flight| queue.meets(in_flight, 8192.0));
        assert_eq!(queue.length(), 2.0);
    }
}
