//! Activity of a volume between two status reports: differences of the daemon's counters, which only grow.

use braid_control::{DeviceReport, Lateness, StatusReport};
use serde::Serialize;

/// Activity of a volume between two status reports.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Time between the two reports.
    pub measured_seconds: f64,
    /// Requests to the volume: reads, writes and flushes.
    pub requests: u64,
    /// 99th percentile of the latency of these requests.
    pub latency_ns_p99: u64,
    /// Bytes read and written by guests.
    pub guest_bytes: u64,
    /// Extents with a new home.
    pub migrations: u64,
    /// Share of lateness in the response time of devices for guests. Lateness: completion after the time of
    /// the model.
    pub lateness_share: f64,
    /// True if the lateness is too high for figures to count.
    pub too_late: bool,
    /// Devices of the volume, by place.
    pub devices: Vec<DeviceInterval>,
}

/// Activity of a device between two status reports.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeviceInterval {
    /// `ssd` or `hdd`.
    pub class: String,
    /// Share of the volume's data on the device, at the end.
    pub data_share: f64,
    /// Share of the device in the guests' reads and writes.
    pub requests_share: f64,
    /// Reads and writes of guests, and flushes on behalf of guests.
    pub requests: u64,
    /// Mean response time of these requests.
    pub all_response_ns_mean: u64,
    /// Number of flushes among these requests.
    pub flushes: u64,
    /// Mean response time of flushes.
    pub flush_response_ns_mean: u64,
    /// Mean lateness of requests after the time of the model, background included.
    pub lateness_ns_mean: u64,
}

impl Interval {
    /// Activity from `before` to `after`.
    pub fn between(before: &StatusReport, after: &StatusReport) -> Interval {
        let pairs = || before.devices.iter().zip(&after.devices);
        let total: u64 = pairs().map(|(before, after)| transfers(after) - transfers(before)).sum();
        let counts = difference(&before.guests.latency_ns_counts, &after.guests.latency_ns_counts);
        let bytes = |report: &StatusReport| report.guests.read.bytes + report.guests.write.bytes;
        let devices: Vec<_> =
            pairs().map(|(before, after)| DeviceInterval::between(before, after, total)).collect();
        let lateness_share = lateness_share(&devices);
        Interval {
            measured_seconds: after.uptime_seconds - before.uptime_seconds,
            requests: counts.iter().map(|&(_, count)| count).sum(),
            latency_ns_p99: percentile(&counts, 0.99),
            guest_bytes: bytes(after) - bytes(before),
            migrations: after.background.migrations - before.background.migrations,
            lateness_share,
            too_late: lateness_share > Lateness::BOUND,
            devices,
        }
    }
}

impl Interval {
    /// Share of SSDs in the guests' reads and writes on devices.
    pub fn ssd_share(&self) -> f64 {
        self.devices.iter().filter(|device| device.class == "ssd").map(|device| device.requests_share).sum()
    }
}

impl DeviceInterval {
    fn between(before: &DeviceReport, after: &DeviceReport, total: u64) -> DeviceInterval {
        let flush_time = |device: &DeviceReport| device.flushes * device.flush_response_ns_mean;
        let time = |device: &DeviceReport| transfers(device) * device.response.response_ns_mean;
        let (moved, flushes) = (transfers(after) - transfers(before), after.flushes - before.flushes);
        // Means are rounded to nanoseconds, so the product of count and mean may shrink a little.
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
            lateness_ns_mean: lateness_between(before, after),
        }
    }
}

/// Mean lateness of the requests that completed between two reports; 0 for a device without a model.
fn lateness_between(before: &DeviceReport, after: &DeviceReport) -> u64 {
    let requests = |device: &DeviceReport| device.lateness_requests.unwrap_or(0);
    let total = |device: &DeviceReport| requests(device) * device.lateness_ns_mean.unwrap_or(0);
    // Rounded means, as above.
    total(after).saturating_sub(total(before)) / (requests(after) - requests(before)).max(1)
}

/// Lateness of all devices as a share of response time, weighted by guests' requests. A device that only
/// moves data therefore may be late.
fn lateness_share(devices: &[DeviceInterval]) -> f64 {
    let sum = |time: fn(&DeviceInterval) -> u64| {
        devices.iter().map(|device| device.requests as f64 * time(device) as f64).sum::<f64>()
    };
    let response = sum(|device| device.all_response_ns_mean);
    // At most 1: lateness includes background requests and may exceed the response time of guests.
    if response == 0.0 { 0.0 } else { (sum(|device| device.lateness_ns_mean) / response).min(1.0) }
}

fn transfers(device: &DeviceReport) -> u64 {
    device.guest_read_requests + device.guest_write_requests
}

type Counts = [(u64, u64)];

/// Growth of a histogram. A step appears at its first use and never vanishes.
fn difference(before: &Counts, after: &Counts) -> Vec<(u64, u64)> {
    let had = |time: u64| before.binary_search_by_key(&time, |&(time, _)| time).map_or(0, |at| before[at].1);
    after.iter().map(|&(time, count)| (time, count.saturating_sub(had(time)))).collect()
}

/// Shortest time that `share` of the requests did not exceed; 0 without requests.
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
pub mod tests {
    use super::*;

    /// A device with this number of guests' requests, and response time and lateness in microseconds.
    fn device(class: &str, requests: u64, response_us: u64, lateness_us: u64) -> DeviceReport {
        let mut device = DeviceReport {
            class: class.to_owned(),
            guest_read_requests: requests,
            lateness_requests: Some(requests),
            lateness_ns_mean: Some(lateness_us * 1_000),
            ..DeviceReport::default()
        };
        device.response.response_ns_mean = response_us * 1_000;
        device
    }

    /// An interval with an SSD and a disk. The SSD has this lateness and a response time of 100 microseconds;
    /// the disk has a tenth as many requests, of 10 ms.
    pub fn interval(ssd_lateness_us: u64) -> Interval {
        let devices = [device("ssd", 1_000, 100, ssd_lateness_us), device("hdd", 100, 10_000, 50)];
        let idle = DeviceReport { lateness_requests: Some(0), ..DeviceReport::default() };
        let devices: Vec<_> =
            devices.iter().map(|device| DeviceInterval::between(&idle, device, 1_100)).collect();
        let lateness_share = lateness_share(&devices);
        Interval {
            measured_seconds: 6.0,
            requests: 1_100,
            latency_ns_p99: 12_340_000,
            guest_bytes: 1 << 20,
            migrations: 0,
            lateness_share,
            too_late: lateness_share > Lateness::BOUND,
            devices,
        }
    }

    #[test]
    fn lateness_covers_the_interval_not_the_total() {
        // 1,000 requests 20 us late, then 1,000 requests 400 us late.
        let (before, after) = (device("ssd", 1_000, 100, 20), device("ssd", 2_000, 300, 210));
        let between = DeviceInterval::between(&before, &after, 1_000);
        assert_eq!(between.lateness_ns_mean, 400_000);
        assert_eq!(between.all_response_ns_mean, 500_000);
        assert!((lateness_share(&[between]) - 0.8).abs() < 1e-9);
    }

    #[test]
    fn a_device_without_a_model_or_without_requests_is_not_late() {
        let real = DeviceReport { guest_read_requests: 9, ..DeviceReport::default() };
        let between = DeviceInterval::between(&DeviceReport::default(), &real, 9);
        assert_eq!((between.lateness_ns_mean, lateness_share(&[between])), (0, 0.0));
        assert_eq!(lateness_share(&[]), 0.0);
    }

    #[test]
    fn lateness_share_is_weighted_by_guest_waiting_time() {
        // (1,000 × 40 + 100 × 50) / (1,000 × 100 + 100 × 10,000) microseconds.
        let in_time = interval(40);
        assert!((in_time.lateness_share - 45.0 / 1_100.0).abs() < 1e-9, "{in_time:?}");
        assert!(!in_time.too_late);
        assert!(interval(60).too_late, "{:?}", interval(60));
    }

    #[test]
    fn percentile_counts_only_requests_of_the_interval() {
        let before = [(1_000, 50), (9_000, 3)];
        let after = [(1_000, 148), (2_000, 1), (9_000, 3), (70_000, 1)];
        let came = difference(&before, &after);
        assert_eq!(came, [(1_000, 98), (2_000, 1), (9_000, 0), (70_000, 1)]);
        assert_eq!(percentile(&came, 0.5), 1_000);
        assert_eq!(percentile(&came, 0.99), 2_000);
        assert_eq!(percentile(&came, 1.0), 70_000);
    }

    #[test]
    fn percentile_of_no_requests_is_zero() {
        assert_eq!(percentile(&[], 0.99), 0);
        assert_eq!(percentile(&difference(&[(5, 2)], &[(5, 2)]), 0.99), 0);
    }
}
