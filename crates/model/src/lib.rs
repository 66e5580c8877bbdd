//! Timing models of SSDs, hard disks, memory, groups of devices and a network between them, and a library of
//! named models.
//!
//! A model takes requests and gives the completion time of each. A model moves no bytes and has no clock:
//! `now` is an argument, so the same code runs in virtual time and gives a real file the timing of a device
//! in real time. All randomness comes from the seed. The same seed and the same submissions give the same
//! completion times on every machine.
//!
//! Limits: contents are not modelled (addresses decide a cache hit), nor are errors, power states, or wear.
//! Memory is bounded by the device's queue and buffer and by the number of requests outstanding. After their
//! growth to this size, a request allocates nothing.
#![forbid(unsafe_code)]

mod agenda;
pub mod dram;
mod find;
mod fit;
pub mod group;
pub mod hdd;
mod library;
mod link;
mod measure;
pub mod network;
mod rate;
pub mod rates;
pub mod ssd;
mod text;

pub use braid_base::{Op, Request};
pub use find::{Found, find, is_file, read};
pub use fit::{Fitted, Nearest, Observed, Served, nearest};
pub use library::{Figure, InvalidModel, Spec, Standing, Timing, UnknownModel, by_name, library};
pub use measure::{Measure, Requests, drive, measure};
pub use rate::Rate;
pub use text::LONGEST_TEXT;

use braid_base::{Bytes, Nanos};
use std::ops::Add;

/// A timing model of one device of a given size: takes requests and gives their completion times.
///
/// The caller reads `next_event`, waits until then, and calls `advance`. The size and number of the caller's
/// steps do not change the completion times.
pub trait Model {
    /// Hands a request to the device at `now`; `tag` comes back on completion. `now` never runs backwards.
    ///
    /// Requests beyond the depth of the device's queue wait outside it, in order of submission.
    ///
    /// # Panics
    /// If the request does not lie within the device.
    fn submit(&mut self, tag: u64, request: Request, now: Nanos);

    /// The time of the next completion or internal change; `None` when idle with no request outstanding.
    ///
    /// Advancing to this time always makes progress. A device with buffered writes may have events without
    /// outstanding requests.
    fn next_event(&self) -> Option<Nanos>;

    /// The request that completes at the next event or soon after, as far as known. Only the caller of this
    /// request then needs to wake.
    fn next_tag(&self) -> Option<u64> {
        None
    }

    /// Advances to `now`, possibly past several events. Appends the tag of every completed request, in order
    /// of completion.
    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>);

    /// Applies the lasting effects of a request, in no time and without counting: for writes before the
    /// period of interest. On an SSD the effects are the places of its pages, which decide the cost of later
    /// writes. Other devices have no lasting effects.
    fn note(&mut self, _request: Request) {}

    /// Counters of transferred bytes and wear. The default is zero: only models with counters override the
    /// method.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// Transferred bytes and wear since the model was built. Only solid-state drives count.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Bytes that the host has read.
    pub read: Bytes,
    /// Bytes that the host has written.
    pub written: Bytes,
    /// Bytes programmed into the flash: the host's, and `copied`.
    pub flash_written: Bytes,
    /// Bytes that collection or merges have copied.
    pub copied: Bytes,
    /// Blocks erased.
    pub erases: u64,
}

impl Counters {
    /// Bytes programmed for each byte written by the host; 1 without writes of the host.
    pub fn write_amplification(&self) -> f64 {
        if self.written == Bytes::ZERO { 1.0 } else { self.flash_written.0 as f64 / self.written.0 as f64 }
    }

    /// The difference from an earlier count of the same model.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            read: self.read - earlier.read,
            written: self.written - earlier.written,
            flash_written: self.flash_written - earlier.flash_written,
            copied: self.copied - earlier.copied,
            erases: self.erases - earlier.erases,
        }
    }
}

impl Add for Counters {
    type Output = Counters;
    fn add(self, other: Counters) -> Counters {
        Counters {
            read: self.read + other.read,
            written: self.written + other.written,
            flash_written: self.flash_written + other.flash_written,
            copied: self.copied + other.copied,
            erases: self.erases + other.erases,
        }
    }
}

/// A model of any kind.
#[derive(Clone, Debug)]
pub enum DeviceModel {
    /// A solid-state drive.
    Ssd(Box<ssd::Ssd>),
    /// A hard disk.
    Hdd(Box<hdd::Hdd>),
    /// Memory.
    Dram(Box<dram::Dram>),
    /// Two rates.
    Rates(Box<rates::Rates>),
    /// Several devices as one.
    Group(Box<group::Group>),
}

impl Model for DeviceModel {
    #[inline]
    fn submit(&mut self, tag: u64, request: Request, now: Nanos) {
        match self {
            DeviceModel::Ssd(ssd) => ssd.submit(tag, request, now),
            DeviceModel::Hdd(hdd) => hdd.submit(tag, request, now),
            DeviceModel::Dram(dram) => dram.submit(tag, request, now),
            DeviceModel::Rates(rates) => rates.submit(tag, request, now),
            DeviceModel::Group(group) => group.submit(tag, request, now),
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Nanos> {
        match self {
            DeviceModel::Ssd(ssd) => ssd.next_event(),
            DeviceModel::Hdd(hdd) => hdd.next_event(),
            DeviceModel::Dram(dram) => dram.next_event(),
            DeviceModel::Rates(rates) => rates.next_event(),
            DeviceModel::Group(group) => group.next_event(),
        }
    }

    #[inline]
    fn next_tag(&self) -> Option<u64> {
        match self {
            DeviceModel::Ssd(ssd) => ssd.next_tag(),
            DeviceModel::Hdd(hdd) => hdd.next_tag(),
            DeviceModel::Dram(dram) => dram.next_tag(),
            DeviceModel::Rates(rates) => rates.next_tag(),
            DeviceModel::Group(group) => group.next_tag(),
        }
    }

    #[inline]
    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        match self {
            DeviceModel::Ssd(ssd) => ssd.advance(now, completed),
            DeviceModel::Hdd(hdd) => hdd.advance(now, completed),
            DeviceModel::Dram(dram) => dram.advance(now, completed),
            DeviceModel::Rates(rates) => rates.advance(now, completed),
            DeviceModel::Group(group) => group.advance(now, completed),
        }
    }

    fn note(&mut self, request: Request) {
        match self {
            DeviceModel::Ssd(ssd) => ssd.note(request),
            DeviceModel::Hdd(hdd) => hdd.note(request),
            DeviceModel::Dram(dram) => dram.note(request),
            DeviceModel::Rates(rates) => rates.note(request),
            DeviceModel::Group(group) => group.note(request),
        }
    }

    fn counters(&self) -> Counters {
        match self {
            DeviceModel::Ssd(ssd) => ssd.counters(),
            DeviceModel::Hdd(hdd) => hdd.counters(),
            DeviceModel::Dram(dram) => dram.counters(),
            DeviceModel::Rates(rates) => rates.counters(),
            DeviceModel::Group(group) => group.counters(),
        }
    }
}

/// Panics if a request does not lie within its device: a bug of the caller.
#[inline]
fn assert_within(request: Request, size: Bytes) {
    if request.offset.checked_add(request.len).is_none_or(|end| end > size) {
        lies_outside(request, size);
    }
}

#[cold]
fn lies_outside(request: Request, size: Bytes) -> ! {
    panic!("{request:?} does not lie within a device of {size}");
}
