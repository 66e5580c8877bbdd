//! New data is spread over all devices (section III-A): "to take advantage of all of the available write
//! bandwidth".
//!
//! Its place in the volume says where an extent goes, not the order in which guests write: a stream is spread
//! alike whichever client writes which part of it first, and can be read from all devices at once. The
//! devices stand in an order that repeats itself: each once (`even`, the round robin of section IV), or as
//! often as its share of the write bandwidth says.
//!
//! That bandwidth is what a device writes for guests in the time in which it is active (section II-A:
//! activeness "is the amount of time a storage device spends servicing read/write requests"), looked at some
//! fifty times a second while new data comes. Devices that are written at the same time are then active
//! equally much. That alone leaves a fast device short that has always something to do, but never enough:
//! behind a network, its only request may be on the way. The slower ones have the queues then, and a device
//! counts as a little faster or slower than it was measured if its queue is shorter or longer than the mean.
//! Until a device has been measured, it counts as the mean of the others.

use super::settings::Spread;
use crate::{Completion, DeviceView, Direction, Origin, View};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};

/// Where new extents go.
pub struct Stripe {
    spread: Spread,
    /// Extent `i` goes to the device in place `i`, modulo the length.
    order: Vec<DeviceId>,
    devices: Vec<Activity>,
    /// When the present measurement began.
    since: Nanos,
    looks: u32,
    /// New extents since the last look.
    new: u32,
    /// Looks since one that found new extents.
    quiet: u32,
}

/// What a device has done of late.
#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    written: Bytes,
    read: Bytes,
    /// Looks that found it at work.
    active: u32,
    /// The requests that looks found there, added up.
    in_flight: u64,
    /// Bytes in a second in which it is active.
    bandwidth: Option<f64>,
}

/// How often devices are looked at while new data comes.
pub const LOOK: Nanos = Nanos::from_millis(20);
/// After so many without new data none comes any more. Fewer may lie between two extents: guests wait for the
/// slowest device of a request, and begin others at the same time.
const MOST_QUIET: u32 = 10;
/// After so many looks the measurement counts, …
const LOOKS: u32 = 50;
/// … for a device that wrote as much as this. One that was never found at work counts as if it had been once:
/// it gets more, and is measured again.
const LEAST_WRITTEN: Bytes = Bytes(1 << 20);
/// Reads may have this share of the bytes: with more, it is not the bandwidth of writes that is measured.
const MOST_READ: f64 = 0.05;
/// The weight of a measurement.
const WEIGHT: f64 = 0.5;
/// By how much a queue counts, at most: more, and the shares of equal queues would never settle.
const QUEUE_WEIGHT: f64 = 0.2;
/// Places of the order in which room is looked for.
const TRIED: usize = 16;
/// Places of the order for each device, and at least.
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

    /// The device of a new extent: the first with room from its place in the order on, or the roomiest. None
    /// if all are full.
    pub fn place_new(&mut self, extent: ExtentId, view: &View) -> Option<DeviceId> {
        self.new += 1;
        let mut next = (0..TRIED).map(|i| self.order[(extent.index() + i) % self.order.len()]);
        next.find(|device| view.devices[device.index()].free > 0).or_else(|| view.roomiest())
    }

    /// The device that an extent goes to if it has room.
    pub fn device_of(&self, extent: ExtentId) -> DeviceId {
        self.order[extent.index() % self.order.len()]
    }

    /// A device did something.
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

    /// Looks at what devices are doing; returns whether new data comes, so that they should be looked at
    /// again soon.
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

    /// A new measurement begins.
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

    /// Each device in as many places as its share says, its places as far apart as can be.
    fn set_order(&mut self) {
        let count = self.devices.len();
        let shares: Vec<f64> = (0..count).map(|device| self.share(DeviceId(device as u16))).collect();
        let places = match self.spread {
            Spread::Even => count,
            Spread::Bandwidth => (PLACES * count).max(LEAST_PLACES),
        };
        let mut order: Vec<(f64, DeviceId)> = Vec::with_capacity(places);
        for (share, device) in shares.into_iter().zip(0..) {
            // Whoever has no place is not measured again.
            let own = (share * places as f64).round().max(1.0);
            order.extend((0..own as usize).map(|i| ((i as f64 + 0.5) / own, DeviceId(device))));
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.order = order.into_iter().map(|(_, device)| device).collect();
    }

    /// The share of new data that a device gets.
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

    /// Bytes that a device writes in a second in which it is active, if that has been measured.
    pub fn bandwidth(&self, device: DeviceId) -> Option<f64> {
        self.devices[device.index()].bandwidth
    }

    /// Takes the bandwidths of an earlier opening.
    pub fn restore(&mut self, bandwidths: impl Iterator<Item = Option<f64>>) {
        for (device, bandwidth) in self.devices.iter_mut().zip(bandwidths) {
            device.bandwidth = bandwidth;
        }
        self.set_order();
    }
}
