//! The place of a sector: zone, cylinder, head, and the angle of its passing.
//!
//! Sectors are numbered from the outer edge inwards, cylinder by cylinder, and within a cylinder head by
//! head. Each track begins later in the turn than the previous track, by the time of the switch between the
//! tracks (skew). Sequential access therefore crosses tracks without losing a turn. An angle is the time in
//! nanoseconds since the index mark passed. The angle is a function of the clock, because the disk never
//! stops turning.
//!
//! A device smaller than the disk has proportionally fewer cylinders, of the same tracks in the same zones. A
//! device with very few cylinders also has fewer heads, so seeks remain.

use crate::hdd::Params;
use braid_base::{Bytes, Nanos, SECTOR};

/// The zones of the Cheetah 15K.5 (decoded from DiskSim's layout file, [derived]): the first cylinder of
/// each, as a share in 1/72,170, and its sectors per track. Every disk has this shape, stretched to its own
/// outer and inner rate, because no other table is available.
const ZONES: [(u64, f64); 14] = [
    (0, 1_200.0),
    (7_801, 1_160.0),
    (14_201, 1_120.0),
    (20_201, 1_104.0),
    (25_901, 1_080.0),
    (31_301, 1_020.0),
    (36_401, 994.0),
    (41_301, 960.0),
    (46_001, 920.0),
    (50_501, 880.0),
    (54_901, 840.0),
    (59_101, 816.0),
    (63_201, 780.0),
    (67_201, 720.0),
];
const ZONES_CYLINDERS: u64 = 72_170;

/// The fewest cylinders before a small device loses heads.
const FEW_CYLINDERS: u64 = 256;

/// The place of a sector.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Counted from the outer edge.
    pub cylinder: u32,
    /// Counted from zero.
    pub head: u32,
    /// The time in a turn at which the sector begins to pass, from the index mark.
    pub angle: Nanos,
}

/// The layout of one disk.
#[derive(Clone, Debug)]
pub struct Geometry {
    revolution: u64,
    heads: u64,
    cylinders: u64,
    head_skew: u64,
    cylinder_skew: u64,
    zones: Vec<Zone>,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    first_sector: u64,
    first_cylinder: u64,
    per_track: u64,
}

/// A sector's track, and the sector's number on it.
struct Spot {
    cylinder: u64,
    head: u64,
    index: u64,
    per_track: u64,
}

impl Geometry {
    /// The layout of a disk of `size` with these mechanics.
    pub fn new(params: &Params, size: Bytes) -> Geometry {
        let sectors = size.align_up(SECTOR) / SECTOR;
        let tracks = tracks_of(params);
        let mean = ZONES.len() as u64 * sectors / tracks.iter().sum::<u64>();
        let heads = (mean / FEW_CYLINDERS).clamp(1, u64::from(params.heads));
        let mut geometry = Geometry {
            revolution: params.revolution.0,
            heads,
            cylinders: 0,
            head_skew: params.head_switch.0,
            cylinder_skew: params.seek.track_write.0,
            zones: Vec::with_capacity(ZONES.len()),
        };
        geometry.lay_out(&tracks, sectors);
        geometry
    }

    /// Lays zones until they hold `sectors`: each has its share of the cylinders, the innermost takes the
    /// rest.
    fn lay_out(&mut self, tracks: &[u64], sectors: u64) {
        let widths = ZONES.iter().map(|zone| zone.0).chain([ZONES_CYLINDERS]).collect::<Vec<_>>();
        let whole: u64 = tracks.iter().zip(widths.windows(2)).map(|(track, w)| track * (w[1] - w[0])).sum();
        let cylinders = (u128::from(sectors) * u128::from(ZONES_CYLINDERS))
            .div_ceil(u128::from(whole * self.heads)) as u64;
        let mut sector = 0;
        for (track, width) in tracks.iter().zip(widths.windows(2)) {
            let first = cylinders * width[0] / ZONES_CYLINDERS;
            let next = cylinders * width[1] / ZONES_CYLINDERS;
            if next == first {
                continue;
            }
            self.zones.push(Zone { first_sector: sector, first_cylinder: first, per_track: *track });
            sector += (next - first) * self.heads * track;
        }
        let innermost =
            self.zones.last().expect("a disk has a cylinder, so it has a zone").per_track * self.heads;
        self.cylinders = cylinders + sectors.saturating_sub(sector).div_ceil(innermost);
    }

    /// The distance from the first cylinder to the last.
    pub fn stroke(&self) -> u32 {
        (self.cylinders - 1) as u32
    }

    /// The time of a turn.
    pub fn revolution(&self) -> Nanos {
        Nanos(self.revolution)
    }

    /// The time from one head to the next on a cylinder.
    pub fn head_switch(&self) -> Nanos {
        Nanos(self.head_skew)
    }

    /// The place of a sector.
    pub fn locate(&self, sector: u64) -> Place {
        let spot = self.spot(sector);
        let angle = (self.skew(&spot) + self.sweep(spot.index, spot.per_track)) % self.revolution;
        Place { cylinder: spot.cylinder as u32, head: spot.head as u32, angle: Nanos(angle) }
    }

    /// The passing time of `count` sectors from the start of the first sector, with the track switches on the
    /// way. A switch after the last sector is not counted.
    pub fn passing(&self, sector: u64, count: u64) -> Nanos {
        let mut spot = self.spot(sector);
        let mut time = 0;
        let mut left = count;
        loop {
            let here = left.min(spot.per_track - spot.index);
            time += self.sweep(spot.index + here, spot.per_track) - self.sweep(spot.index, spot.per_track);
            left -= here;
            if left == 0 {
                return Nanos(time);
            }
            time += self.switch_after(&spot);
            spot = self.spot(sector + count - left);
        }
    }

    /// The number of whole sectors, at most `limit`, that pass within `time` from the start of the first
    /// sector.
    pub fn passed(&self, sector: u64, time: Nanos, limit: u64) -> u64 {
        let mut spot = self.spot(sector);
        let mut left = time.0;
        let mut count = 0;
        loop {
            let rest = self.revolution - self.sweep(spot.index, spot.per_track);
            if left < rest {
                // The largest sector with a sweep within the time, although sweeps are rounded down.
                let swept = self.sweep(spot.index, spot.per_track) + left;
                let end = ((swept + 1) * spot.per_track - 1) / self.revolution;
                return (count + end.saturating_sub(spot.index)).min(limit);
            }
            count += spot.per_track - spot.index;
            left = (left - rest).saturating_sub(self.switch_after(&spot));
            if count >= limit || left == 0 {
                return count.min(limit);
            }
            spot = self.spot(sector + count);
        }
    }

    fn spot(&self, sector: u64) -> Spot {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.first_sector <= sector) - 1];
        let track = (sector - zone.first_sector) / zone.per_track;
        Spot {
            cylinder: zone.first_cylinder + track / self.heads,
            head: track % self.heads,
            index: (sector - zone.first_sector) % zone.per_track,
            per_track: zone.per_track,
        }
    }

    /// The angle at the start of a spot's track.
    fn skew(&self, spot: &Spot) -> u64 {
        let per_cylinder = (self.heads - 1) * self.head_skew + self.cylinder_skew;
        spot.cylinder * per_cylinder + spot.head * self.head_skew
    }

    /// The time from the start of a track to its `index`-th sector.
    fn sweep(&self, index: u64, per_track: u64) -> u64 {
        index * self.revolution / per_track
    }

    fn switch_after(&self, spot: &Spot) -> u64 {
        if spot.head + 1 == self.heads { self.cylinder_skew } else { self.head_skew }
    }
}

/// Sectors per track, zone by zone. The sheet's sustained rate includes the switches between tracks, so a
/// track holds the bytes of a turn plus the mean switch.
fn tracks_of(params: &Params) -> Vec<u64> {
    let heads = f64::from(params.heads);
    let switches = (heads - 1.0) * params.head_switch.as_secs_f64() + params.seek.track_write.as_secs_f64();
    let turn = params.revolution.as_secs_f64() + switches / heads;
    let (first, last) = (ZONES[0].1, ZONES[ZONES.len() - 1].1);
    let (outer, inner) = (params.outer.0 as f64, params.inner.0 as f64);
    let rate = |per_track: f64| inner + (outer - inner) * (per_track - last) / (first - last);
    ZONES.iter().map(|zone| (rate(zone.1) * turn / SECTOR.0 as f64).round() as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{Timing, by_name};
    use braid_base::{GIB, MIB};

    fn disk(name: &str, size: Bytes) -> Geometry {
        match &by_name(name).unwrap().timing {
            Timing::Hdd(params) => Geometry::new(params, size),
            _ => panic!("{name} is no disk"),
        }
    }

    #[test]
    fn transfer_ends_at_start_of_next_transfer() {
        let geometry = disk("mba3073", GIB * 8);
        for sector in [0, 1_017, 900_000, 16_000_000] {
            let whole = geometry.passing(sector, 5_000);
            assert_eq!(geometry.passed(sector, whole, u64::MAX), 5_000);
            let (here, there) = (geometry.locate(sector), geometry.locate(sector + 5_000));
            let turned = (here.angle + whole).0 % geometry.revolution;
            assert_eq!(turned, there.angle.0, "a stream is at the next sector when it has read the last");
        }
    }

    #[test]
    fn every_sector_of_a_small_device_has_a_place() {
        for size in [SECTOR, MIB, MIB * 17, GIB, GIB * 73] {
            let geometry = disk("exos-x20", size);
            let last = geometry.locate(size / SECTOR - 1);
            assert!(last.cylinder <= geometry.stroke(), "{size}: {last:?}");
        }
    }

    #[test]
    fn cylinders_of_full_cheetah_match_layout_file() {
        let cylinders = f64::from(disk("cheetah-15k5", Bytes(73_407_868_928)).stroke());
        assert!((cylinders / 72_170.0 - 1.0).abs() < 0.1, "{cylinders}");
    }
}
