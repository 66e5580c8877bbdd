//! Rates between two reports of a volume.

use crate::status::time;
use braid_base::Bytes;
use braid_control::{DeviceReport, StatusReport, VolumeReport};

/// Rates between two reports.
pub struct Rates {
    pub(super) devices: Vec<Rate>,
    pub(super) operations: Vec<(&'static str, Rate)>,
}

/// Rate of one kind of request between two reports.
#[derive(Clone, Copy, Default)]
pub(super) struct Rate {
    pub requests_per_second: f64,
    pub bytes_per_second: f64,
    pub took_ns_mean: u64,
}

impl Rates {
    /// Computes the rates; all zero if there is no earlier report, or an earlier report of another daemon.
    pub fn between(before: Option<&VolumeReport>, now: &VolumeReport) -> Rates {
        let VolumeReport::Served(now) = now else {
            return Rates { devices: Vec::new(), operations: Vec::new() };
        };
        let before = match before {
            Some(VolumeReport::Served(before)) if before.process_id == now.process_id => before,
            _ => now,
        };
        let seconds = (now.uptime_seconds - before.uptime_seconds).max(1e-3);
        let device = |device: &DeviceReport| {
            let totals = |device: &DeviceReport| {
                let requests = device.guest_read_requests + device.guest_write_requests;
                (
                    requests,
                    device.guest_read_bytes + device.guest_written_bytes,
                    device.response.response_ns_mean,
                )
            };
            // The device may have been added since.
            let earlier = before.devices.iter().find(|earlier| earlier.device == device.device);
            Rate::between(totals(earlier.unwrap_or(device)), totals(device), seconds)
        };
        let operation = |name, totals: &dyn Fn(&StatusReport) -> braid_control::OperationReport| {
            let flat = |status| {
                let operation = totals(status);
                (operation.requests, operation.bytes, operation.latency.latency_ns_mean)
            };
            (name, Rate::between(flat(before), flat(now), seconds))
        };
        Rates {
            devices: now.devices.iter().map(device).collect(),
            operations: vec![
                operation("read", &|status| status.guests.read),
                operation("write", &|status| status.guests.write),
                operation("flush", &|status| status.guests.flush),
            ],
        }
    }

    /// Cells for a device: requests per second, mean response time.
    pub fn device(&self, place: usize) -> [String; 2] {
        let rate = &self.devices[place];
        [format!("{:.0}", rate.requests_per_second), time(rate.took_ns_mean)]
    }

    /// Cells for a kind of request: requests and bytes per second, mean response time.
    pub fn operation(&self, name: &str) -> [String; 3] {
        let found = self.operations.iter().find(|(known, _)| *known == name);
        let none = Rate::default();
        let rate = found.map_or(&none, |(_, rate)| rate);
        let bytes = Bytes(rate.bytes_per_second as u64);
        [format!("{:.0}", rate.requests_per_second), bytes.to_string(), time(rate.took_ns_mean)]
    }
}

impl Rate {
    fn between(before: (u64, u64, u64), now: (u64, u64, u64), seconds: f64) -> Rate {
        let (requests, bytes) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
        // The sum of all response times is the mean times the count.
        let total = |(requests, _, mean): (u64, u64, u64)| u128::from(requests) * u128::from(mean);
        let took = total(now).saturating_sub(total(before));
        Rate {
            requests_per_second: requests as f64 / seconds,
            bytes_per_second: bytes as f64 / seconds,
            took_ns_mean: if requests == 0 { 0 } else { (took / u128::from(requests)) as u64 },
        }
    }
}
