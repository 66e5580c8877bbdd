//! `braid status --watch`: repeats the status every second, with rates in between.

use crate::output::{Output, is_open};
use crate::status::{all, describe, overview, time};
use braid_base::Bytes;
use braid_control::{DeviceReport, Result, StateDir, StatusReport, VolumeName, VolumeReport, volume_report};
use std::io::IsTerminal;
use std::time::Duration;

/// Shows one volume or all volumes until interrupted, until a report fails, or until standard output is
/// closed.
pub fn watch(state: &StateDir, name: Option<&VolumeName>, output: Output) -> Result<u8> {
    let mut before: Option<VolumeReport> = None;
    while is_open() {
        if let Some(name) = name {
            let now = volume_report(state, name)?;
            let rates = Rates::between(before.as_ref(), &now);
            output.show_framed(&now, || describe(state, name, &now, Some(&rates)), screen);
            before = Some(now);
        } else {
            let reports = all(state)?;
            output.show_framed(&serde_json::json!({ "volumes": reports }), || overview(&reports), screen);
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(0)
}

const INTERVAL: Duration = Duration::from_secs(1);

/// Frames text to replace the previous text on a terminal.
fn screen(text: String) -> String {
    const HOME: &str = "\x1b[H";
    const CLEAR_LINE: &str = "\x1b[K\n";
    const CLEAR_BELOW: &str = "\x1b[J";
    if !std::io::stdout().is_terminal() {
        return format!("{text}\n");
    }
    // Overwrite line by line: clearing the screen first would flicker.
    HOME.to_owned() + &text.trim_end().replace('\n', CLEAR_LINE) + CLEAR_LINE + CLEAR_BELOW
}

/// Rates between two reports.
pub struct Rates {
    devices: Vec<Rate>,
    operations: Vec<(&'static str, Rate)>,
}

/// Rate of one kind of request between two reports.
#[derive(Default)]
struct Rate {
    requests_per_second: f64,
    bytes_per_second: f64,
    took_ns_mean: u64,
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
