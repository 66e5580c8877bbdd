//! Demand of extents, as time on unloaded devices of each class.

use crate::{Direction, Piece, View};
use braid_base::{Bytes, DeviceClass, Nanos};

/// Milliseconds a second, by class of device (disk, SSD) and direction (read, write).
pub(super) type Times = [[f32; 2]; 2];

/// Returns the index of a class in [`Times`].
pub(super) fn class(class: DeviceClass) -> usize {
    match class {
        DeviceClass::Hdd => 0,
        DeviceClass::Ssd => 1,
    }
}

/// Returns the index of a direction; none for a flush.
pub(super) fn direction(direction: Direction) -> Option<usize> {
    match direction {
        Direction::Read => Some(0),
        Direction::Write => Some(1),
        Direction::Flush => None,
    }
}

/// Approximate speed of a class of devices; any difference is part of a device's slowness. Only the ratio of
/// positioning to transfer matters, and the ratio hardly differs between devices of a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    pub position_ms: f64,
    pub ms_per_mib: f64,
}

impl Speed {
    pub fn transfer(&self, len: Bytes) -> f64 {
        self.ms_per_mib * len.0 as f64 / (1 << 20) as f64
    }

    /// Returns the time to reach a start `gap` bytes after the end of another request: pass over the gap, or
    /// position anew.
    fn reach(&self, gap: Bytes) -> f64 {
        self.position_ms.min(self.transfer(gap))
    }

    /// Returns the bytes that a disk passes over in the time of positioning.
    fn passes_over(&self) -> u64 {
        (self.position_ms / self.ms_per_mib * f64::from(1 << 20)) as u64 + 1
    }

    pub fn scattered(&self, len: Bytes) -> f64 {
        self.position_ms + self.transfer(len)
    }
}

/// Demand of an extent, or of a group of extents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// Demand as of `at`.
    times: Times,
    pub at: Nanos,
    pub moved: Option<Nanos>,
    /// Demand expected at `since`, in milliseconds a second of a disk, and demand that came since, in
    /// milliseconds of a disk.
    pub expected: Option<f32>,
    pub came: f32,
    pub since: Option<Nanos>,
}

impl Demand {
    /// Returns the demand decayed until `now`.
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
        self.moved = Some(self.at);
    }
}

/// Returns the demand of an extent: half the extent's own, half the mean of the group.
pub(super) fn lent(own: Times, of_group: Times, group: u32) -> Times {
    let mut demand = own;
    for (own, of_group) in demand.as_flattened_mut().iter_mut().zip(of_group.as_flattened()) {
        *own = (*own + of_group / group as f32) / 2.0;
    }
    demand
}

/// Returns the time that a disk would take for a demand.
pub(super) fn of_disk(demand: &Times) -> f32 {
    demand[class(DeviceClass::Hdd)].iter().sum()
}

/// Ends of the most recent requests.
#[derive(Debug)]
pub(super) struct Runs {
    ends: Vec<u64>,
    /// Ends in units of 4 KiB, cut off at 16 TiB: many fit a register, and usually tell at once that no end
    /// is near.
    coarse: Vec<u32>,
    next: usize,
}

impl Runs {
    pub fn new(streams: usize) -> Runs {
        // No request begins soon after the middle of all addresses.
        let none = u64::MAX / 2;
        Runs { ends: vec![none; streams], coarse: vec![coarse(none); streams], next: 0 }
    }

    /// Returns the time of a piece on a disk: only transfer if the piece continues one of the most recent
    /// requests.
    pub fn takes(&mut self, disk: Speed, piece: &Piece, view: &View) -> f64 {
        let extent = (view.extent_size * u64::from(piece.extent.0)).0;
        let (start, end) = (extent + piece.range.start.0, extent + piece.range.end.0);
        let (place, reach) = match self.nearest(start, disk.passes_over()) {
            Some((place, gap)) => (place, disk.reach(Bytes(gap))),
            None => (self.next, disk.position_ms),
        };
        let goes_on = reach < disk.position_ms;
        let place = if goes_on { place } else { self.next };
        self.next = if goes_on { self.next } else { (self.next + 1) % self.ends.len() };
        (self.ends[place], self.coarse[place]) = (end, coarse(end));
        reach + disk.transfer(Bytes(end - start))
    }

    /// Returns the nearest end before an address, and the distance. May return none if no end is within
    /// `most`.
    fn nearest(&self, start: u64, most: u64) -> Option<(usize, u64)> {
        let (at, most) = (coarse(start), coarse(most).saturating_add(1));
        let are_near =
            self.coarse.iter().fold(0, |any, &other| any | u32::from(at.wrapping_sub(other) <= most));
        if are_near == 0 {
            return None;
        }
        // Wrapping: an end beyond the address counts as farthest away.
        let gaps = self.ends.iter().map(|&other| start.wrapping_sub(other)).enumerate();
        gaps.min_by_key(|&(_, gap)| gap)
    }
}

fn coarse(address: u64) -> u32 {
    (address >> 12) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    /// The coarse first look never leaves out a near end.
    #[test]
    fn nearest_run_end_within_limit_is_always_found() {
        let mut rng = Rng::new(7);
        let most = 800 << 10;
        let (mut found, mut passed) = (0, 0);
        for _ in 0..20_000 {
            let mut runs = Runs::new(8);
            let base = rng.below(1 << 50);
            for place in 0..8 {
                let end = base + rng.below(1 << 24);
                (runs.ends[place], runs.coarse[place]) = (end, coarse(end));
            }
            let start = base + rng.below(1 << 24);
            let nearest = runs.ends.iter().map(|&end| start.wrapping_sub(end)).min();
            match runs.nearest(start, most) {
                Some((place, gap)) => {
                    assert_eq!((Some(gap), gap), (nearest, start.wrapping_sub(runs.ends[place])));
                    found += 1;
                }
                None => {
                    assert!(nearest.is_some_and(|gap| gap > most), "{start} {:?}", runs.ends);
                    passed += 1;
                }
            }
        }
        assert!(found > 1000 && passed > 1000, "{found} {passed}");
    }
}
