//! The write buffer of a disk: runs of sectors that the host regards as written.
//!
//! Adjacent and overlapping writes become one run, so sequential small writes reach the platter as one
//! stream. Runs are kept in order of address: neighbours in the list are neighbours on the platter, and the
//! next run to destage is mostly a run near the arm.

use crate::hdd::geometry::{Geometry, Place};
use braid_base::{Bytes, Nanos, SECTOR};

/// A run of buffered sectors.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Its first sector.
    pub sector: u64,
    /// The number of sectors.
    pub count: u64,
    /// The place of its first sector.
    pub place: Place,
    /// The time of its oldest write.
    pub since: Nanos,
}

impl Run {
    fn end(&self) -> u64 {
        self.sector + self.count
    }
}

/// The buffered runs, at most a fixed number of them.
#[derive(Clone, Debug)]
pub struct WriteBuffer {
    runs: Vec<Run>,
    limit: usize,
    sectors: u64,
    capacity: u64,
    leaving: u64,
    hand: usize,
}

/// Runs weighed on each side of the arm for the next destage.
const NEAR: usize = 32;

impl WriteBuffer {
    /// An empty buffer of `capacity` and at most `limit` runs.
    pub fn new(capacity: Bytes, limit: usize) -> WriteBuffer {
        WriteBuffer {
            runs: Vec::with_capacity(limit),
            limit,
            sectors: 0,
            capacity: capacity / SECTOR,
            leaving: 0,
            hand: 0,
        }
    }

    /// True if no run is buffered or on its way to the platter.
    pub fn is_clean(&self) -> bool {
        self.runs.is_empty() && self.leaving == 0
    }

    /// True if there is a run to destage.
    pub fn has_runs(&self) -> bool {
        !self.runs.is_empty()
    }

    /// True if three quarters of the bytes or of the runs are taken.
    pub fn is_filling(&self) -> bool {
        4 * self.taken() >= 3 * self.capacity || 4 * self.runs.len() >= 3 * self.limit
    }

    /// True if a write of `count` sectors fits; an empty buffer takes any write.
    pub fn has_room(&self, sector: u64, count: u64) -> bool {
        if self.is_clean() {
            return true;
        }
        let (first, next) = self.touched(sector, count);
        self.taken() + count <= self.capacity && (first < next || self.runs.len() < self.limit)
    }

    /// Takes a write.
    pub fn insert(&mut self, sector: u64, count: u64, now: Nanos, geometry: &Geometry) {
        let (first, next) = self.touched(sector, count);
        if first == next {
            self.runs.insert(first, Run { sector, count, place: geometry.locate(sector), since: now });
            self.sectors += count;
            return;
        }
        let end = self.runs[next - 1].end().max(sector + count);
        let since = self.runs[first..next].iter().map(|run| run.since).min().unwrap_or(now);
        let replaced: u64 = self.runs[first..next].iter().map(|run| run.count).sum();
        let run = &mut self.runs[first];
        if sector < run.sector {
            run.sector = sector;
            run.place = geometry.locate(sector);
        }
        run.count = end - run.sector;
        run.since = since;
        self.sectors = self.sectors + run.count - replaced;
        self.runs.drain(first + 1..next);
    }

    /// True if all these sectors are buffered.
    pub fn holds(&self, sector: u64, count: u64) -> bool {
        let next = self.runs.partition_point(|run| run.sector <= sector);
        next > 0 && self.runs[next - 1].end() >= sector + count
    }

    /// Takes the run with the lowest cost, or its first `most` sectors. `cost` is called for the runs near
    /// `cylinder`, and for one more run, a different run each time. Every run is therefore weighed sooner or
    /// later, and an old run wins. The taken sectors keep their room until `arrived`.
    pub fn take(
        &mut self,
        cylinder: u32,
        most: u64,
        geometry: &Geometry,
        cost: impl Fn(&Run) -> i64,
    ) -> Option<Run> {
        let arm = self.runs.partition_point(|run| run.place.cylinder < cylinder);
        let near = arm.saturating_sub(NEAR)..(arm + NEAR).min(self.runs.len());
        self.hand = (self.hand + 1) % self.runs.len().max(1);
        let far = (self.hand < self.runs.len()).then_some(self.hand);
        let at = near.chain(far).min_by_key(|&at| cost(&self.runs[at]))?;
        let mut taken = self.runs[at];
        if taken.count > most {
            taken.count = most;
            let rest = &mut self.runs[at];
            rest.sector += most;
            rest.count -= most;
            rest.place = geometry.locate(rest.sector);
        } else {
            self.runs.remove(at);
        }
        self.sectors -= taken.count;
        self.leaving = taken.count;
        Some(taken)
    }

    /// Frees the room of the last taken run: the run is on the platter.
    pub fn arrived(&mut self) {
        self.leaving = 0;
    }

    fn taken(&self) -> u64 {
        self.sectors + self.leaving
    }

    /// The runs that overlap or touch these sectors, as a range of places in the list.
    fn touched(&self, sector: u64, count: u64) -> (usize, usize) {
        let first = self.runs.partition_point(|run| run.end() < sector);
        let next = self.runs.partition_point(|run| run.sector <= sector + count);
        (first, next.max(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{Timing, by_name};
    use braid_base::{GIB, MIB, Rng};

    fn geometry() -> Geometry {
        match &by_name("mba3073").unwrap().timing {
            Timing::Hdd(params) => Geometry::new(params, GIB),
            _ => panic!("the mba3073 is a disk"),
        }
    }

    #[test]
    fn adjacent_and_overlapping_writes_form_one_run() {
        let geometry = geometry();
        let mut buffer = WriteBuffer::new(MIB, 4);
        for (sector, count) in [(8, 8), (24, 8), (16, 8), (12, 40)] {
            buffer.insert(sector, count, Nanos::ZERO, &geometry);
        }
        assert_eq!((buffer.runs.len(), buffer.runs[0].sector, buffer.sectors), (1, 8, 44));
        assert!(buffer.holds(8, 44) && !buffer.holds(7, 2) && !buffer.holds(50, 3));
    }

    #[test]
    fn a_buffer_counts_each_buffered_sector_once() {
        let geometry = geometry();
        let mut rng = Rng::new(3);
        let mut buffer = WriteBuffer::new(MIB, 64);
        let mut buffered = vec![false; 2_000];
        for _ in 0..400 {
            let (sector, count) = (rng.below(1_900), rng.between(1, 60));
            if buffer.has_room(sector, count) {
                buffer.insert(sector, count, Nanos::ZERO, &geometry);
                buffered[sector as usize..(sector + count) as usize].fill(true);
            }
            if let Some(run) =
                buffer.take(0, 40, &geometry, |run| run.sector as i64 % 7).filter(|_| rng.chance(0.5))
            {
                buffer.arrived();
                buffered[run.sector as usize..run.end() as usize].fill(false);
            } else if buffer.leaving > 0 {
                let run = buffered.clone();
                buffer = WriteBuffer::new(MIB, 64);
                buffered = vec![false; run.len()];
            }
            assert_eq!(buffer.sectors, buffered.iter().filter(|&&held| held).count() as u64);
            assert!(buffer.runs.is_sorted_by(|one, next| one.end() < next.sector));
        }
    }
}
