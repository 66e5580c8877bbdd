//! New data is spread over all devices (section III-A): "to take advantage of all of the available write
//! bandwidth".
//!
//! An extent's address in the volume determines its device; the order of guests' writes does not. A stream is
//! therefore spread evenly regardless of the order in which clients write its parts, and can be read from all
//! devices at once. Devices stand in a repeating order: each device once (`even`, the round robin of section
//! IV), or in proportion to its share of the write bandwidth.
//!
//! The bandwidth is the bytes written for guests in a device's active time (section II-A: activeness "is the
//! amount of time a storage device spends servicing read/write requests"). Activity is sampled about fifty
//! times a second while new data arrives. Devices written at the same time are then equally active.
//!
//! Active time alone gives too little to a fast device that is always busy but never full: behind a network,
//! its only request may be in transit. The queues are then on slower devices. A device therefore counts as a
//! little faster than measured if its queue is shorter than the mean, and as a little slower if longer. A
//! device without a measurement counts as the mean of the measured devices.

use super::settings::Spread;
use crate::{Completion, DeviceView, Direction, Origin, View};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};

/// Distribution of new extents.
pub struct Stripe {
    spread: Spread,
    /// Extent `i` goes to the device at place `i`, modulo the length.
    order: Vec<DeviceId>,
    devices: Vec<Activity>,
    /// Start of the present measurement.
    since: Nanos,
    looks: u32,
    /// New extents since the last sample.
    new: u32,
    /// Samples in a row without new extents.
    quiet: u32,
}

/// Recent activity of a device.
#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    written: Bytes,
    read: Bytes,
    /// Samples that found the device active.
    active: u32,
    /// Sum of the requests in flight over the samples.
    in_flight: u64,
    /// Bytes per second of active time.
    bandwidth: Option<f64>,
}

/// Time between two samples while new data arrives.
pub const LOOK: Nanos = Nanos::from_millis(20);
/// Samples without new data after which no more new data is expected. Fewer samples may lie between two
/// extents: guests wait for a request's slowest device before they send the next requests.
const MOST_QUIET: u32 = 10;
/// Samples of a measurement.
const LOOKS: u32 = 50;
/// Least bytes written by a device for a valid measurement. A device never found active counts as active
/// once: the device then gets more data, and is measured again.
const LEAST_WRITTEN: Bytes = Bytes(1 << 20);
/// Largest share of reads in the bytes: with more reads, the measurement is not of the write bandwidth.
const MOST_READ: f64 = 0.05;
/// Weight of a new measurement in the average.
const WEIGHT: f64 = 0.5;
/// Largest influence of a queue: with more, the shares of equal devices would never settle.
const QUEUE_WEIGHT: f64 = 0.2;
/// Places of the order in which room is searched.
const TRIED: usize = 16;
/// Places of the order for each device, and in total at least.
const PLACES: usize = 16;
const LEAST_PLACES: usize = 256;

impl Stripe {
    pub fn new(spread: Spread, devices: &[DeviceView]) -> Stripe {
        let mut stripe = Stripe {
            spread,
            order: devices.iter().map(|device| device.id).collect(),
            devices: vec![Activity::default(); devices.len()],
            since: Nanos::ZERO,
            looks: 0,
            new: 0,
            quiet: MOST_QUIET,
        };
        stripe.set_order();
        stripe
    }

    /// Returns the device of a new extent: the first device with room from the extent's place in the order,
    /// or the roomiest device. `None` if all devices are full.
    pub fn place_new(&mut self, extent: ExtentId, view: &View) -> Option<DeviceId> {
        self.new += 1;
        let mut next = (0..TRIED).map(|i| self.order[(extent.index() + i) % self.order.len()]);
        next.find(|device| view.devices[device.index()].free > 0).or_else(|| view.roomiest())
    }

    /// Returns the device of an extent if the device has room.
    pub fn device_of(&self, extent: ExtentId) -> DeviceId {
        self.order[extent.index() % self.order.len()]
    }

    /// Counts the bytes of a guest's finished request.
    #[inline]
    pub fn completed(&mut self, io: &Completion) {
        if io.origin == Origin::Guest {
            let device = &mut self.devices[io.device.index()];
            match io.direction {
                Direction::Read => device.read += io.len,
                Direction::Write => device.written += io.len,
                Direction::Flush => {}
            }
        }
    }

    /// Samples the activity of the devices. True if new data arrives and the next sample should come after
    /// [`LOOK`].
    pub fn look(&mut self, view: &View) -> bool {
        self.quiet = match std::mem::take(&mut self.new) {
            0 => (self.quiet + 1).min(MOST_QUIET),
            _ => 0,
        };
        if self.spread == Spread::Even || self.quiet == MOST_QUIET {
            self.begin(view.now);
            return false;
        }
        for (device, view) in self.devices.iter_mut().zip(view.devices) {
            device.active += u32::from(view.in_flight > 0);
            device.in_flight += u64::from(view.in_flight);
        }
        self.looks += 1;
        if self.looks == LOOKS {
            self.measure(view.now - self.since);
            self.begin(view.now);
        }
        true
    }

    /// Begins a new measurement.
    fn begin(&mut self, now: Nanos) {
        (self.since, self.looks) = (now, 0);
        for device in &mut self.devices {
            *device = Activity { bandwidth: device.bandwidth, ..Activity::default() };
        }
    }

    fn measure(&mut self, time: Nanos) {
        let all = |bytes: fn(&Activity) -> Bytes| self.devices.iter().map(|d| bytes(d).0).sum::<u64>() as f64;
        if all(|d| d.read) > MOST_READ * all(|d| d.written) {
            return;
        }
        let queue = |device: &Activity| 1.0 + device.in_flight as f64 / f64::from(LOOKS);
        let mean = self.devices.iter().map(queue).sum::<f64>() / self.devices.len() as f64;
        for device in &mut self.devices {
            if device.written >= LEAST_WRITTEN {
                let active = time.as_secs_f64() * f64::from(device.active.max(1)) / f64::from(LOOKS);
                let own = queue(device);
                let could_do_more = 1.0 + QUEUE_WEIGHT * (mean - own) / (mean + own);
                let measured = device.written.0 as f64 / active * could_do_more;
                let before = device.bandwidth.unwrap_or(measured);
                device.bandwidth = Some(before + WEIGHT * (measured - before));
            }
        }
        self.set_order();
    }

    /// Computes the order: each device in as many places as its share, evenly spaced.
    fn set_order(&mut self) {
        let count = self.devices.len();
        let shares: Vec<f64> = (0..count).map(|device| self.share(DeviceId(device as u16))).collect();
        let places = match self.spread {
            Spread::Even => count,
            Spread::Bandwidth => (PLACES * count).max(LEAST_PLACES),
        };
        let mut order: Vec<(f64, DeviceId)> = Vec::with_capacity(places);
        for (share, device) in shares.into_iter().zip(0..) {
            // At least one place: a device without a place would not be measured again.
            let own = (share * places as f64).round().max(1.0);
            order.extend((0..own as usize).map(|i| ((i as f64 + 0.5) / own, DeviceId(device))));
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.order = order.into_iter().map(|(_, device)| device).collect();
    }

    /// Returns a device's share of new data.
    pub fn share(&self, device: DeviceId) -> f64 {
        let known: Vec<f64> = self.devices.iter().filter_map(|d| d.bandwidth).collect();
        let count = self.devices.len() as f64;
        if self.spread == Spread::Even || known.is_empty() {
            return 1.0 / count;
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        self.bandwidth(device).unwrap_or(mean)
            / (known.iter().sum::<f64>() + mean * (count - known.len() as f64))
    }

    /// Returns a device's write bandwidth in bytes per second of active time; `None` before a measurement.
    pub fn bandwidth(&self, device: DeviceId) -> Option<f64> {
        self.devices[device.index()].bandwidth
    }

    /// Restores the bandwidths of an earlier opening.
    pub fn restore(&mut self, bandwidths: impl Iterator<Item = Option<f64>>) {
        for (device, bandwidth) in self.devices.iter_mut().zip(bandwidths) {
            device.bandwidth = bandwidth;
        }
        self.set_order();
    }
}
