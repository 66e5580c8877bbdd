//! What extents are asked for, as time that it would take devices of each class, unloaded.

use crate::{Direction, Piece, View};
use braid_base::{Bytes, DeviceClass, Nanos};

/// Milliseconds a second, by class of device (disk, SSD) and direction (read, write).
pub(super) type Times = [[f32; 2]; 2];

/// The place of a class in [`Times`].
pub(super) fn class(class: DeviceClass) -> usize {
    match class {
        DeviceClass::Hdd => 0,
        DeviceClass::Ssd => 1,
    }
}

/// The place of a direction; none for a flush.
pub(super) fn direction(direction: Direction) -> Option<usize> {
    match direction {
        Direction::Read => Some(0),
        Direction::Write => Some(1),
        Direction::Flush => None,
    }
}

/// How fast a device of a class is, about: what differs from this is part of its slowness. What counts is how positioning compares with
/// transfer, and that hardly differs between devices of a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    pub position_ms: f64,
    read_ms_per_mib: f64,
    write_ms_per_mib: f64,
}

impl Speed {
    pub fn of(class: DeviceClass) -> Speed {
        match class {
            // A seek and half a turn, and 100 MB/s.
            DeviceClass::Hdd => Speed { position_ms: 8.0, read_ms_per_mib: 10.0, write_ms_per_mib: 10.0 },
            // A page read, 250 MB/s, and as much less for writes as flash is slower to write.
            DeviceClass::Ssd => Speed { position_ms: 0.1, read_ms_per_mib: 4.0, write_ms_per_mib: 10.0 },
        }
    }

    pub fn takes(&self, len: Bytes, is_write: bool, scattered: bool) -> f64 {
        let position = if scattered { self.position_ms } else { 0.0 };
        position + self.transfer(len, is_write)
    }

    pub fn transfer(&self, len: Bytes, is_write: bool) -> f64 {
        let per_mib = if is_write { self.write_ms_per_mib } else { self.read_ms_per_mib };
        per_mib * len.0 as f64 / (1 << 20) as f64
    }
}

/// What a request takes a device of each class. An SSD positions for each.
pub(super) fn takes(len: Bytes, is_write: bool, scattered: bool) -> [f64; 2] {
    let of = |class, scattered| Speed::of(class).takes(len, is_write, scattered);
    [of(DeviceClass::Hdd, scattered), of(DeviceClass::Ssd, true)]
}

/// What an extent, or a group of them, is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// As of `at`.
    times: Times,
    pub at: Nanos,
    /// When it moved; zero if it has not.
    pub moved: Nanos,
    /// What was expected at `since`, and what came since, as time of a disk: milliseconds a second, and milliseconds.
    pub expected: f32,
    pub came: f32,
    pub since: Nanos,
}

impl Demand {
    /// With what is forgotten by then taken off.
    pub fn at(&self, now: Nanos, memory: Nanos) -> Times {
        let age = now.saturating_sub(self.at).0 as f32 / memory.0 as f32;
        let left = (-age).exp();
        self.times.map(|class| class.map(|time| time * left))
    }

    pub fn add(&mut self, takes: [f64; 2], direction: usize, now: Nanos, memory: Nanos) {
        (self.times, self.at) = (self.at(now, memory), now);
        self.came += takes[0] as f32;
        for (times, takes) in self.times.iter_mut().zip(takes) {
            times[direction] += (takes / memory.as_secs_f64()) as f32;
        }
    }

    pub fn has_moved(&mut self) {
        self.moved = self.at;
    }
}

/// So far behind the end of another request is going on: a reader that skips a little does not make a disk seek.
const NEAR: u64 = 32 << 10;

/// Where the last requests ended: as many as streams that a disk's own buffer may follow.
#[derive(Debug)]
pub(super) struct Runs {
    ends: [u64; 64],
    next: usize,
}

impl Default for Runs {
    fn default() -> Runs {
        // No piece begins behind these.
        Runs { ends: [u64::MAX - NEAR; 64], next: 0 }
    }
}

impl Runs {
    /// Whether a piece begins where one of the last requests ended, or a little behind.
    pub fn goes_on(&mut self, piece: &Piece, view: &View) -> bool {
        let extent = (view.extent_size * u64::from(piece.extent.0)).0;
        let (start, end) = (extent + piece.range.start.0, extent + piece.range.end.0);
        match self.ends.iter().position(|&other| start.wrapping_sub(other) <= NEAR) {
            Some(place) => {
                self.ends[place] = end;
                true
            }
            None => {
                self.ends[self.next] = end;
                self.next = (self.next + 1) % self.ends.len();
                false
            }
        }
    }
}
