//! The last hour and the last day of the devices, in memory: a point every ten seconds, and one every five
//! minutes.
//!
//! A point holds means between two reports. The first report of a daemon only begins a difference, and the
//! history survives a restart of a daemon, but not of the dashboard: [`HistoryReport::since_unix_seconds`]
//! tells when it began.

use braid_control::{DeviceReport, StatusReport, VolumeName, VolumeReport};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time between two reports.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// Points of an hour.
const HOUR_POINTS: usize = 360;
/// Time of a point of the day, and points of a day.
const DAY_SECONDS: u64 = 300;
const DAY_POINTS: usize = 288;
/// Most devices of all volumes: 16 MiB of points. Further devices have no history.
const MOST_DEVICES: usize = 1024;

/// Histories of all volumes.
#[derive(Default)]
pub(crate) struct History {
    volumes: Mutex<BTreeMap<VolumeName, Volume>>,
}

/// The part of the past that a report covers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Range {
    #[default]
    Hour,
    Day,
}

struct Volume {
    since: u64,
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
#[derive(Clone, Copy, Default)]
struct Counters {
    requests: u64,
    bytes: u64,
    response_ns: u128,
    busy_seconds: f64,
}

/// Growth of a device's counters within some time.
#[derive(Clone, Copy, Default)]
struct Growth {
    counters: Counters,
    /// Requests of all devices.
    all: u64,
    seconds: f64,
}

struct Device {
    class: String,
    hour: VecDeque<Point>,
    day: VecDeque<Point>,
    /// The present point of the day: its number since 1970, and the growth so far.
    present: Option<(u64, Growth)>,
}

#[derive(Clone, Copy)]
struct Point {
    unix_seconds: u32,
    /// Not a number without requests.
    response_ns_mean: f32,
    requests_per_second: f32,
    bytes_per_second: f32,
    requests_share: f32,
    utilisation: f32,
}

/// The history of a volume, as the API gives it.
#[derive(Serialize)]
pub(crate) struct HistoryReport {
    /// The past that was asked for.
    pub range: Range,
    /// Time of a point.
    pub interval_seconds: u64,
    /// Time of the first report of the volume since the dashboard started; null if there was none.
    pub since_unix_seconds: Option<u64>,
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
    pub unix_seconds: Vec<u32>,
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
    /// Share of the time with a request at the device.
    pub utilisation: Vec<f32>,
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
                let begin = || Volume { since: unix_seconds, latest: None, devices: BTreeMap::new() };
                volumes.entry(name.clone()).or_insert_with(begin).add(unix_seconds, status, &mut kept);
            }
        }
    }

    /// Returns the history of a volume; empty if there is none.
    pub fn report(&self, name: &VolumeName, range: Range) -> HistoryReport {
        let volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let volume = volumes.get(name);
        let devices = volume.into_iter().flat_map(|volume| &volume.devices);
        HistoryReport {
            range,
            interval_seconds: match range {
                Range::Hour => INTERVAL.as_secs(),
                Range::Day => DAY_SECONDS,
            },
            since_unix_seconds: volume.map(|volume| volume.since),
            devices: devices.map(|(name, device)| device.series(name, range)).collect(),
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
            let Some(counters) = grown(device) else { continue };
            if !self.devices.contains_key(&device.device) {
                if *kept >= MOST_DEVICES {
                    continue;
                }
                *kept += 1;
            }
            let kept = self.devices.entry(device.device.clone()).or_insert_with(|| Device::new(device));
            kept.add(unix_seconds, Growth { counters, all, seconds });
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
            busy_seconds: device.device_busy_seconds,
        }
    }

    fn since(self, before: &Counters) -> Counters {
        Counters {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            response_ns: self.response_ns.saturating_sub(before.response_ns),
            busy_seconds: (self.busy_seconds - before.busy_seconds).max(0.0),
        }
    }
}

impl Growth {
    fn and(self, more: Growth) -> Growth {
        Growth {
            counters: Counters {
                requests: self.counters.requests + more.counters.requests,
                bytes: self.counters.bytes + more.counters.bytes,
                response_ns: self.counters.response_ns + more.counters.response_ns,
                busy_seconds: self.counters.busy_seconds + more.counters.busy_seconds,
            },
            all: self.all + more.all,
            seconds: self.seconds + more.seconds,
        }
    }

    fn point(self, unix_seconds: u64) -> Point {
        let Counters { requests, bytes, response_ns, busy_seconds } = self.counters;
        Point {
            unix_seconds: u32::try_from(unix_seconds).unwrap_or(u32::MAX),
            // Zero divided by zero is no number.
            response_ns_mean: (response_ns as f64 / requests as f64) as f32,
            requests_per_second: (requests as f64 / self.seconds) as f32,
            bytes_per_second: (bytes as f64 / self.seconds) as f32,
            requests_share: if self.all == 0 { 0.0 } else { requests as f32 / self.all as f32 },
            utilisation: (busy_seconds / self.seconds).clamp(0.0, 1.0) as f32,
        }
    }
}

impl Device {
    fn new(device: &DeviceReport) -> Device {
        let (hour, day) = (VecDeque::new(), VecDeque::new());
        Device { class: device.class.clone(), hour, day, present: None }
    }

    fn add(&mut self, unix_seconds: u64, growth: Growth) {
        push(&mut self.hour, growth.point(unix_seconds), HOUR_POINTS);
        let number = unix_seconds.saturating_sub(1) / DAY_SECONDS;
        self.present = match self.present {
            Some((present, so_far)) if present == number => Some((number, so_far.and(growth))),
            Some((before, whole)) => {
                push(&mut self.day, whole.point((before + 1) * DAY_SECONDS), DAY_POINTS);
                Some((number, growth))
            }
            None => Some((number, growth)),
        };
    }

    fn series(&self, name: &str, range: Range) -> Series {
        let points: Vec<Point> = match range {
            Range::Hour => self.hour.iter().copied().collect(),
            Range::Day => {
                // The present point ends with the latest report.
                let end = self.hour.back().map_or(0, |point| u64::from(point.unix_seconds));
                let present = self.present.map(|(_, so_far)| so_far.point(end));
                self.day.iter().copied().chain(present).collect()
            }
        };
        let each = |value: fn(&Point) -> f32| points.iter().map(value).collect();
        let mean = |point: &Point| Some(point.response_ns_mean).filter(|mean| !mean.is_nan());
        Series {
            device: name.to_owned(),
            class: self.class.clone(),
            unix_seconds: points.iter().map(|point| point.unix_seconds).collect(),
            response_ns_mean: points.iter().map(|point| mean(point).map(|mean| mean as u64)).collect(),
            requests_per_second: each(|point| point.requests_per_second),
            bytes_per_second: each(|point| point.bytes_per_second),
            requests_share: each(|point| point.requests_share),
            in_flight_mean: points
                .iter()
                .map(|point| mean(point).map_or(0.0, |mean| point.requests_per_second * mean / 1e9))
                .collect(),
            utilisation: each(|point| point.utilisation),
        }
    }
}

fn push(points: &mut VecDeque<Point>, point: Point, most: usize) {
    if points.len() == most {
        points.pop_front();
    }
    points.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> DeviceReport {
        DeviceReport { device: "d0".to_owned(), class: "hdd".to_owned(), ..DeviceReport::default() }
    }

    fn growth(requests: u64, busy_seconds: f64) -> Growth {
        let counters = Counters {
            requests,
            bytes: requests * 4096,
            response_ns: u128::from(requests) * 2_000_000,
            busy_seconds,
        };
        Growth { counters, all: requests * 4, seconds: 10.0 }
    }

    #[test]
    fn points_of_the_day_are_means_of_five_minutes_and_the_present_one_counts() {
        let mut device = Device::new(&device());
        let start = 300 * 5_000_000;
        (1..=30).for_each(|n| device.add(start + n * 10, growth(if n <= 15 { 100 } else { 0 }, 5.0)));
        device.add(start + 310, growth(0, 0.0));
        let (hour, day) = (device.series("d0", Range::Hour), device.series("d0", Range::Day));
        assert_eq!((hour.unix_seconds.len(), hour.response_ns_mean[30]), (31, None));
        assert_eq!(day.unix_seconds, [(start + 300) as u32, (start + 310) as u32]);
        assert_eq!(day.response_ns_mean, [Some(2_000_000), None]);
        assert_eq!((&day.requests_per_second[..], &day.utilisation[..]), (&[5.0, 0.0][..], &[0.5, 0.0][..]));
        assert_eq!((&day.requests_share[..], &day.in_flight_mean[..]), (&[0.25, 0.0][..], &[0.01, 0.0][..]));
    }

    #[test]
    fn an_hour_and_a_day_are_kept_in_bounded_memory() {
        let mut device = Device::new(&device());
        (1..=3 * 8640).for_each(|n| device.add(n * 10, growth(1, 1.0)));
        assert_eq!((device.hour.len(), device.day.len()), (HOUR_POINTS, DAY_POINTS));
        let most = MOST_DEVICES * (HOUR_POINTS + DAY_POINTS) * size_of::<Point>();
        assert!(most <= 16 << 20, "{most}");
        let day = device.series("d0", Range::Day);
        assert_eq!(day.unix_seconds.last(), Some(&(3 * 86_400)));
        assert_eq!(day.unix_seconds[1] - day.unix_seconds[0], 300);
    }
}
