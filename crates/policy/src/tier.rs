//! A tier: the devices of a class together, and their latency by Little's law, L = O / R, as in Colloid.
//!
//! O is the mean number of requests in flight in a round, R the rate of completions. Both are averaged over
//! rounds and then divided, so that rounds with few requests make no spikes. The sum of the response times of
//! a round's completions is the integral of the requests in flight, except for requests in flight at the
//! round's ends.

use crate::DeviceView;
use braid_base::Nanos;

/// Measurements of a tier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tier {
    /// Totals of this round: response times in ms, requests, and bytes.
    round_ms: f64,
    round_requests: f64,
    round_bytes: f64,
    /// O, in requests, and R, in requests per millisecond; `None` before the first round with requests.
    smooth: Option<(f64, f64)>,
    /// Bytes per request, averaged in the same way.
    request_bytes: f64,
    /// True if no request completed in the last round; then the latency of the last probe.
    is_idle: bool,
    probe_ms: Option<f64>,
}

/// One slot in `SPARE` of a device stays free of homes: an exchange needs a free slot first.
const SPARE: u32 = 64;

/// Number of slots of a device reserved for exchanges.
pub fn spare(device: &DeviceView) -> u32 {
    (device.slots / SPARE).max(1)
}

impl Tier {
    /// Counts a completed guest request.
    pub fn completed(&mut self, bytes: u64, latency: Nanos) {
        self.round_ms += latency.as_millis_f64();
        self.round_requests += 1.0;
        self.round_bytes += bytes as f64;
    }

    /// Records the latency of a completed probe.
    pub fn probed(&mut self, latency: Nanos) {
        self.probe_ms = Some(latency.as_millis_f64());
    }

    /// Ends a round of `length_ms`; the round counts by `weight`. Averages stay if no request completed.
    pub fn end_round(&mut self, length_ms: f64, weight: f64) {
        self.is_idle = self.round_requests == 0.0;
        if !self.is_idle {
            let (flight, rate) = (self.round_ms / length_ms, self.round_requests / length_ms);
            let bytes = self.round_bytes / self.round_requests;
            let (old_flight, old_rate) = self.smooth.unwrap_or((flight, rate));
            let mix = |old: f64, new: f64| (1.0 - weight) * old + weight * new;
            self.request_bytes = if self.smooth.is_some() { mix(self.request_bytes, bytes) } else { bytes };
            self.smooth = Some((mix(old_flight, flight), mix(old_rate, rate)));
        }
        (self.round_ms, self.round_requests, self.round_bytes) = (0.0, 0.0, 0.0);
    }

    /// Returns L, in milliseconds; for a tier without requests, the latency of a probe. `None` if neither is
    /// known.
    pub fn latency_ms(&self) -> Option<f64> {
        let loaded = self.smooth.map(|(flight, rate)| flight / rate);
        if self.is_idle { self.probe_ms.or(loaded) } else { loaded }
    }

    /// Returns R, in requests per millisecond: 0 while the tier is idle.
    pub fn rate(&self) -> f64 {
        if self.is_idle { 0.0 } else { self.smooth.map_or(0.0, |(_, rate)| rate) }
    }

    /// Bytes of guests' requests per millisecond.
    pub fn bytes_per_ms(&self) -> f64 {
        self.rate() * self.request_bytes
    }

    /// True if no request completed in the last round: the tier needs a probe.
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In 200 ms 100 requests of 4 ms: 2 in flight, 0.5 per ms, 4 ms. Then 10 of 40 ms, by a weight of a
    /// half: O = (2 + 2) / 2, R = (0.5 + 0.05) / 2. The mean of both latencies would be 22 ms.
    #[test]
    fn latency_is_mean_in_flight_over_mean_rate() {
        let mut tier = Tier::default();
        assert_eq!(tier.latency_ms(), None);
        (0..100).for_each(|_| tier.completed(4096, Nanos::from_millis(4)));
        tier.end_round(200.0, 0.5);
        assert_eq!((tier.latency_ms(), tier.rate(), tier.bytes_per_ms()), (Some(4.0), 0.5, 2048.0));
        (0..10).for_each(|_| tier.completed(4096, Nanos::from_millis(40)));
        tier.end_round(200.0, 0.5);
        assert!((tier.latency_ms().unwrap() - 2.0 / 0.275).abs() < 1e-9, "{tier:?}");
    }

    #[test]
    fn idle_tier_reports_probe_latency() {
        let mut tier = Tier::default();
        (0..10).for_each(|_| tier.completed(4096, Nanos::from_millis(8)));
        tier.end_round(200.0, 1.0);
        tier.probed(Nanos::from_millis(3));
        assert_eq!(tier.latency_ms(), Some(8.0), "it is loaded");
        tier.end_round(200.0, 1.0);
        assert_eq!((tier.latency_ms(), tier.rate()), (Some(3.0), 0.0));
    }
}
