//! What happened between two looks at a volume: the daemon's counters never go back, so the difference tells.

use braid_control::{DeviceReport, StatusReport};
use serde::Serialize;

/// A volume between two moments.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Between the two.
    pub measured_seconds: f64,
    /// Requests to the volume: reads, writes and flushes.
    pub requests: u64,
    /// 99 % of them took no longer.
    pub latency_ns_p99: u64,
    /// Bytes read and written, by guests.
    pub guest_bytes: u64,
    /// Extents that got a new home.
    pub migrations: u64,
    /// Its devices, by their place.
    pub devices: Vec<DeviceInterval>,
}

/// A device between two moments.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeviceInterval {
    /// `ssd` or `hdd`.
    pub class: String,
    /// Its share of the data, at the end.
    pub data_share: f64,
    /// Its share of the guests' reads and writes.
    pub requests_share: f64,
    /// Reads and writes of guests, and flushes on their behalf.
    pub requests: u64,
    /// How long these took on average.
    pub all_response_ns_mean: u64,
    /// Of these the flushes.
    pub flushes: u64,
    /// How long flushes took on average.
    pub flush_response_ns_mean: u64,
    /// How much later than its model it completed requests, on average since the daemon started.
    pub lateness_ns_mean: u64,
}

impl Interval {
    /// From `before` to `after`.
    pub fn between(before: &StatusReport, after: &StatusReport) -> Interval {
        let pairs = || before.devices.iter().zip(&after.devices);
        let total: u64 = pairs().map(|(before, after)| transfers(after) - transfers(before)).sum();
        let counts = difference(&before.guests.latency_ns_counts, &after.guests.latency_ns_counts);
        let bytes = |report: &StatusReport| report.guests.read.bytes + report.guests.write.bytes;
        Interval {
            measured_seconds: after.uptime_seconds - before.uptime_seconds,
            requests: counts.iter().map(|&(_, count)| count).sum(),
            latency_ns_p99: percentile(&counts, 0.99),
            guest_bytes: bytes(after) - bytes(before),
            migrations: after.background.migrations - before.background.migrations,
            devices: pairs().map(|(before, after)| DeviceInterval::between(before, after, total)).collect(),
        }
    }
}

impl DeviceInterval {
    fn between(before: &DeviceReport, after: &DeviceReport, total: u64) -> DeviceInterval {
        let flush_time = |device: &DeviceReport| device.flushes * device.flush_response_ns_mean;
        let time = |device: &DeviceReport| transfers(device) * device.response.response_ns_mean;
        let (moved, flushes) = (transfers(after) - transfers(before), after.flushes - before.flushes);
        // A mean is rounded to nanoseconds, so that a product of an idle device may shrink by a little.
        let flushed = flush_time(after).saturating_sub(flush_time(before));
        let took = time(after).saturating_sub(time(before)) + flushed;
        DeviceInterval {
            class: after.class.clone(),
            data_share: after.data_share,
            requests_share: moved as f64 / total.max(1) as f64,
            requests: moved + flushes,
            all_response_ns_mean: took / (moved + flushes).max(1),
            flushes,
            flush_response_ns_mean: flushed / flushes.max(1),
            lateness_ns_mean: after.lateness_ns_mean.unwrap_or(0),
        }
    }
}

fn transfers(device: &DeviceReport) -> u64 {
    device.guest_read_requests + device.guest_write_requests
}

type Counts = [(u64, u64)];

/// What came to a histogram. Steps appear as they are first used, and never go.
fn difference(before: &Counts, after: &Counts) -> Vec<(u64, u64)> {
    let had = |time: u64| before.binary_search_by_key(&time, |&(time, _)| time).map_or(0, |at| before[at].1);
    after.iter().map(|&(time, count)| (time, count.saturating_sub(had(time)))).collect()
}

/// The time that this share of requests did not exceed; 0 if there was none.
fn percentile(counts: &Counts, share: f64) -> u64 {
    let total: u64 = counts.iter().map(|&(_, count)| count).sum();
    let wanted = (total as f64 * share).ceil() as u64;
    let mut seen = 0;
    let reached = counts.iter().find(|&&(_, count)| {
        seen += count;
        seen >= wanted && count > 0
    });
    reached.map_or(0, |&(time, _)| time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_counts_only_what_came_between() {
        let before = [(1_000, 50), (9_000, 3)];
        let after = [(1_000, 148), (2_000, 1), (9_000, 3), (70_000, 1)];
        let came = difference(&before, &after);
        assert_eq!(came, [(1_000, 98), (2_000, 1), (9_000, 0), (70_000, 1)]);
        assert_eq!(percentile(&came, 0.5), 1_000);
        assert_eq!(percentile(&came, 0.99), 2_000);
        assert_eq!(percentile(&came, 1.0), 70_000);
    }

    #[test]
    fn without_requests_there_is_no_percentile() {
        assert_eq!(percentile(&[], 0.99), 0);
        assert_eq!(percentile(&difference(&[(5, 2)], &[(5, 2)]), 0.99), 0);
    }
}
