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

/// What devices of a class take, about: what differs from this is part of their slowness. What counts is how
/// positioning compares with transfer, and that hardly differs between devices of a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    pub position_ms: f64,
    pub ms_per_mib: f64,
}

impl Speed {
    pub fn transfer(&self, len: Bytes) -> f64 {
        self.ms_per_mib * len.0 as f64 / (1 << 20) as f64
    }

    /// What begins so far behind the end of something else: passing over what lies between, or positioning
    /// anew.
    fn reach(&self, gap: Bytes) -> f64 {
        self.position_ms.min(self.transfer(gap))
    }

    /// How many bytes a disk passes over in the time of positioning.
    fn passes_over(&self) -> u64 {
        (self.position_ms / self.ms_per_mib * f64::from(1 << 20)) as u64 + 1
    }

    pub fn scattered(&self, len: Bytes) -> f64 {
        self.position_ms + self.transfer(len)
    }
}

/// What an extent, or a group of them, is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// As of `at`.
    times: Times,
    pub at: Nanos,
    pub moved: Option<Nanos>,
    /// What was expected at `since`, and what came since, as time of a disk: milliseconds a second, and
    /// milliseconds.
    pub expected: Option<f32>,
    pub came: f32,
    pub since: Option<Nanos>,
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
        self.moved = Some(self.at);
    }
}

/// The demand of an extent: half of it its own, half the mean of its group.
pub(super) fn lent(own: Times, of_group: Times, group: u32) -> Times {
    let mut demand = own;
    for (own, of_group) in demand.as_flattened_mut().iter_mut().zip(of_group.as_flattened()) {
        *own = (*own + of_group / group as f32) / 2.0;
    }
    demand
}

/// What of it a disk would do.
pub(super) fn of_disk(demand: &Times) -> f32 {
    demand[class(DeviceClass::Hdd)].iter().sum()
}

/// Where the last requests ended.
#[derive(Debug)]
pub(super) struct Runs {
    ends: Vec<u64>,
    /// The same in units of 4 KiB, cut off at 16 TiB: many of these fit a register, and mostly tell at once
    /// that none is near.
    coarse: Vec<u32>,
    next: usize,
}

impl Runs {
    pub fn new(streams: usize) -> Runs {
        // Nothing begins soon behind the middle of all addresses.
        let none = u64::MAX / 2;
        Runs { ends: vec![none; streams], coarse: vec![coarse(none); streams], next: 0 }
    }

    /// What a piece takes a disk: nothing but transfer where it goes on with one of the last requests.
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

    /// Which end is nearest before an address, and how far away; none if none is as near as `most`, perhaps.
    fn nearest(&self, start: u64, most: u64) -> Option<(usize, u64)> {
        let (at, most) = (coarse(start), coarse(most).saturating_add(1));
        let are_near =
            self.coarse.iter().fold(0, |any, &other| any | u32::from(at.wrapping_sub(other) <= most));
        if are_near == 0 {
            return None;
        }
        // Wrapping: what ended further on is as far away as can be.
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

    /// What is left out at first look is never near.
    #[test]
    fn the_nearest_end_is_found_wherever_it_is_near() {
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
