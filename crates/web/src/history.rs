//! The last hour of the devices, in memory: a point every ten seconds, the oldest first.
//!
//! A point holds means between two reports. The first report of a daemon only begins a difference, and the
//! history survives a restart of a daemon, but not of the dashboard.

use braid_control::{DeviceReport, StatusReport, VolumeName, VolumeReport};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time between two points.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// Points of an hour.
const POINTS: usize = 360;
/// Most devices of all volumes: 10 MiB of points. Further devices have no history.
const MOST_DEVICES: usize = 1024;

/// Histories of all volumes.
#[derive(Default)]
pub(crate) struct History {
    volumes: Mutex<BTreeMap<VolumeName, Volume>>,
}

#[derive(Default)]
struct Volume {
    /// Totals of the latest report, with its daemon and the uptime of the daemon.
    latest: Option<Totals>,
    devices: BTreeMap<String, Device>,
}

struct Totals {
    process_id: u32,
    uptime_seconds: f64,
    devices: BTreeMap<String, Counters>,
}

/// Counters of a device since the daemon started.
#[derive(Clone, Copy)]
struct Counters {
    requests: u64,
    bytes: u64,
    response_ns: u128,
}

struct Device {
    class: String,
    points: VecDeque<Point>,
}

#[derive(Clone, Copy)]
struct Point {
    unix_seconds: u64,
    response_ns_mean: Option<u64>,
    requests_per_second: f32,
    bytes_per_second: f32,
    requests_share: f32,
    in_flight_mean: f32,
}

/// The history of a volume, as the API gives it.
#[derive(Serialize)]
pub(crate) struct HistoryReport {
    /// Time between two points.
    pub interval_seconds: u64,
    /// The devices, by name.
    pub devices: Vec<Series>,
}

/// The history of a device: lists of equal length, a point each.
#[derive(Serialize)]
pub(crate) struct Series {
    /// The device's place in the volume.
    pub device: String,
    /// `ssd` or `hdd`.
    pub class: String,
    /// End of each interval.
    pub unix_seconds: Vec<u64>,
    /// Mean response time of guests' requests; null without requests.
    pub response_ns_mean: Vec<Option<u64>>,
    /// Guests' requests in a second.
    pub requests_per_second: Vec<f32>,
    /// Guests' bytes in a second.
    pub bytes_per_second: Vec<f32>,
    /// Share of the guests' requests of all devices.
    pub requests_share: Vec<f32>,
    /// Mean number of guests' requests at the device: rate times response time.
    pub in_flight_mean: Vec<f32>,
}

impl History {
    /// Adds a point for each device of each served volume, and forgets volumes without a name.
    pub fn add(&self, unix_seconds: u64, reports: &[(VolumeName, crate::survey::Shared)]) {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.retain(|name, _| reports.iter().any(|(known, _)| known == name));
        let mut kept: usize = volumes.values().map(|volume| volume.devices.len()).sum();
        for (name, report) in reports {
            if let Ok(report) = report
                && let VolumeReport::Served(status) = &**report
            {
                volumes.entry(name.clone()).or_default().add(unix_seconds, status, &mut kept);
            }
        }
    }

    /// Returns the history of a volume; empty if there is none.
    pub fn report(&self, name: &VolumeName) -> HistoryReport {
        let volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = volumes.get(name).into_iter().flat_map(|volume| &volume.devices);
        HistoryReport {
            interval_seconds: INTERVAL.as_secs(),
            devices: devices.map(|(name, device)| device.series(name)).collect(),
        }
    }
}

impl Volume {
    fn add(&mut self, unix_seconds: u64, status: &StatusReport, kept: &mut usize) {
        let counted = status.devices.iter().map(|device| (device.device.clone(), Counters::of(device)));
        let now = Totals {
            process_id: status.process_id,
            uptime_seconds: status.uptime_seconds,
            devices: counted.collect(),
        };
        let before = self.latest.replace(now);
        let Some(before) = before.filter(|before| before.process_id == status.process_id) else { return };
        let seconds = status.uptime_seconds - before.uptime_seconds;
        if seconds <= 0.0 {
            return;
        }
        self.devices.retain(|name, _| {
            let stays = status.devices.iter().any(|device| device.device == *name);
            *kept -= usize::from(!stays);
            stays
        });
        let grown =
            |device: &DeviceReport| Some(Counters::of(device).since(before.devices.get(&device.device)?));
        let all: u64 = status.devices.iter().filter_map(grown).map(|grown| grown.requests).sum();
        for device in &status.devices {
            let Some(grown) = grown(device) else { continue };
            if !self.devices.contains_key(&device.device) {
                if *kept >= MOST_DEVICES {
                    continue;
                }
                *kept += 1;
            }
            let series = self
                .devices
                .entry(device.device.clone())
                .or_insert_with(|| Device { class: device.class.clone(), points: VecDeque::new() });
            if series.points.len() == POINTS {
                series.points.pop_front();
            }
            series.points.push_back(grown.point(unix_seconds, seconds, all));
        }
    }
}

impl Counters {
    fn of(device: &DeviceReport) -> Counters {
        let requests = device.guest_read_requests + device.guest_write_requests;
        Counters {
            requests,
            bytes: device.guest_read_bytes + device.guest_written_bytes,
            // The sum of all response times is the mean times the count.
            response_ns: u128::from(requests) * u128::from(device.response.response_ns_mean),
        }
    }

    fn since(self, before: &Counters) -> Counters {
        Counters {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            response_ns: self.response_ns.saturating_sub(before.response_ns),
        }
    }

    fn point(self, unix_seconds: u64, seconds: f64, all: u64) -> Point {
        let requests = u128::from(self.requests);
        let mean = (requests > 0).then(|| (self.response_ns / requests.max(1)) as u64);
        Point {
            unix_seconds,
            response_ns_mean: mean,
            requests_per_second: (self.requests as f64 / seconds) as f32,
            bytes_per_second: (self.bytes as f64 / seconds) as f32,
            requests_share: if all == 0 { 0.0 } else { self.requests as f32 / all as f32 },
            in_flight_mean: (self.response_ns as f64 / 1e9 / seconds) as f32,
        }
    }
}

impl Device {
    fn series(&self, name: &str) -> Series {
        let points = &self.points;
        Series {
            device: name.to_owned(),
            class: self.class.clone(),
            unix_seconds: points.iter().map(|point| point.unix_seconds).collect(),
            response_ns_mean: points.iter().map(|point| point.response_ns_mean).collect(),
            requests_per_second: points.iter().map(|point| point.requests_per_second).collect(),
            bytes_per_second: points.iter().map(|point| point.bytes_per_second).collect(),
            requests_share: points.iter().map(|point| point.requests_share).collect(),
            in_flight_mean: points.iter().map(|point| point.in_flight_mean).collect(),
        }
    }
}
