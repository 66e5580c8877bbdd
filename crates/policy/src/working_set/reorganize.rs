//! Algorithm 2: which extents go where (section III-C).
//!
//! ```text
//! for each item in the read region's table:   hotness > H, on a disk: to an SSD.
//!                                             hotness < L, on an SSD: to a disk, through a delayed strategy.
//! for each item in the write region's table:  hotness > H, on an SSD: to a disk.
//! ```
//!
//! It works in rounds, each of which compares where extents lie with where the tables want them. A round
//! first makes room, then fills it: extents that are often written leave the SSDs, then cold ones as far as
//! an SSD is below its water mark, and what is often read comes, the hottest if not all of it has room. It is
//! over when a round finds nothing to do, and it must end: of
//!
//! ```text
//! potential = 2 × (extents that are hot and on the wrong class of device) + Σ over SSDs (free slots that it lacks to its water mark)
//! ```
//!
//! each move takes at least one. What comes to an SSD takes 2 and adds 1 at most; what is hot and leaves one
//! takes 2; what is cold leaves only while the mark is lacking, and takes 1.
//!
//! In the paper a cold item is marked, and moves once its SSD is below the mark (`cold=marked`: `marks.rs`).
//! With `cold=unread` cold extents are looked for at that time, in the order of their addresses: an extent
//! that is in no table is cold, too, for its hotness is 0.

use super::marks::Marks;
use super::settings::{Both, Constants};
use super::table::Table;
use crate::{DeviceView, Move, View};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, Nanos, NodeId};
use std::collections::BTreeMap;

/// What a round knows.
pub struct Tables<'a> {
    pub constants: &'a Constants,
    pub reads: &'a Table,
    pub writes: &'a Table,
    /// The half of the window that both count as the last.
    pub half: u32,
    /// The extents that may leave as cold ones, if not all may.
    pub marks: Option<&'a Marks>,
}

/// Where the tables want an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// It is read often.
    Ssd,
    /// It is written often.
    Hdd,
    /// It is cold: it leaves an SSD that is below its water mark.
    HddInNeed,
    /// It is lukewarm.
    Anywhere,
}

/// Slots that moves have freed and that are not free yet: they are once the change is durable and, on some
/// devices, at the next checkpoint. Without this, cold extents would leave an SSD for as long as its free
/// slots are not seen to grow.
pub struct Room {
    devices: Vec<Expected>,
    /// When slots were freed last, or became free.
    changed: Nanos,
    /// When it was looked at last.
    looked: Nanos,
}

#[derive(Clone, Copy, Default)]
struct Expected {
    /// Free slots when they were seen last.
    seen: u32,
    /// What moves have freed beyond these.
    freed: u32,
}

/// The search for cold extents, which goes on from round to round.
#[derive(Default)]
pub struct Search {
    hand: u32,
    /// Extents seen since it was made to begin anew.
    seen: u32,
}

/// A round's moves, and what it could not finish.
#[derive(Default)]
pub struct Round {
    pub moves: Vec<Move>,
    /// Which device each extent leaves, in the order of extents.
    pub leaves: Vec<(ExtentId, DeviceId)>,
    /// What comes to the SSDs in it, with the disk that it leaves and its hotness.
    pub gains: Vec<(DeviceId, u8)>,
    /// An SSD lacks free slots, and the search for cold extents has not seen all of the volume.
    pub searches: bool,
    /// Slots that have been freed are awaited by what is to come.
    pub awaits_room: bool,
}

/// A device that extents may go to.
struct Target {
    free: u32,
    device: DeviceId,
}

/// Extents that a round looks at in search of cold ones: about a millisecond.
const SEARCHED: u32 = 1 << 14;
/// A slot that a move has freed is free by then: after two checkpoints.
const LATEST: Nanos = Nanos::from_secs(60);
/// So many bytes side by side go to the same device, so that they are one run.
const RUN: Bytes = Bytes(256 << 10);

impl Tables<'_> {
    /// Where an extent belongs.
    pub fn wanted(&self, extent: ExtentId) -> Wanted {
        let (read, write) = (self.reads.hotness(extent, self.half), self.writes.hotness(extent, self.half));
        match self.wanted_by(read, write) {
            Wanted::HddInNeed if self.marks.is_some_and(|marks| !marks.has(extent)) => Wanted::Anywhere,
            wanted => wanted,
        }
    }

    fn wanted_by(&self, read: u8, write: u8) -> Wanted {
        let Constants { threshold_h, threshold_l, both, .. } = *self.constants;
        match (read > threshold_h, write > threshold_h) {
            (true, true) if both == Both::Ssd => Wanted::Ssd,
            (_, true) => Wanted::Hdd,
            (true, false) => Wanted::Ssd,
            (false, false) if read < threshold_l => Wanted::HddInNeed,
            (false, false) => Wanted::Anywhere,
        }
    }

    /// The next round.
    pub fn round(&self, view: &View, room: &Room, search: &mut Search) -> Round {
        let mut round = Round::default();
        let mut off = self.written_often(view);
        let lacks = self.find_cold(view, room, search, &mut off);
        round.searches = lacks && search.seen < view.homes.extents();
        let on = self.read_often(view, room, &mut round);
        round.gains = on.iter().map(|&(hotness, disk, _)| (disk, hotness)).collect();
        let on = on.into_iter().map(|(_, disk, extent)| (disk, extent)).collect();
        round.spread(off, DeviceClass::Hdd, view);
        round.spread(on, DeviceClass::Ssd, view);
        round.leaves.sort_unstable();
        round
    }

    /// Extents on SSDs that are hot in the write region.
    fn written_often(&self, view: &View) -> Vec<(DeviceId, ExtentId)> {
        let on_ssd = self.hot(self.writes).filter_map(|(extent, write)| {
            home_on(DeviceClass::Ssd, extent, view).map(|ssd| (ssd, extent, write))
        });
        let leaves = |&(_, extent, write): &(_, ExtentId, u8)| {
            self.wanted_by(self.reads.hotness(extent, self.half), write) == Wanted::Hdd
        };
        on_ssd.filter(leaves).map(|(ssd, extent, _)| (ssd, extent)).collect()
    }

    /// Cold extents on each SSD, as many as it lacks free slots when all these have left it. Whether some are
    /// lacking still.
    fn find_cold(
        &self,
        view: &View,
        room: &Room,
        search: &mut Search,
        off: &mut Vec<(DeviceId, ExtentId)>,
    ) -> bool {
        let lacking = |device| self.lacking(device, room, view);
        let mut lacking: Vec<u32> = view.devices.iter().map(lacking).collect();
        off.iter().for_each(|(ssd, _)| lacking[ssd.index()] = lacking[ssd.index()].saturating_sub(1));
        let mut all: u64 = lacking.iter().map(|&slots| u64::from(slots)).sum();
        for _ in 0..SEARCHED {
            let next = if all > 0 { search.next(view.homes.extents()) } else { None };
            let Some(extent) = next else { break };
            let Some(ssd) = home_on(DeviceClass::Ssd, extent, view) else { continue };
            if lacking[ssd.index()] > 0 && self.wanted(extent) == Wanted::HddInNeed {
                (lacking[ssd.index()], all) = (lacking[ssd.index()] - 1, all - 1);
                off.push((ssd, extent));
            }
        }
        all > 0
    }

    /// The hottest extents on disks in the read region for which the SSDs have room.
    fn read_often(&self, view: &View, room: &Room, round: &mut Round) -> Vec<(u8, DeviceId, ExtentId)> {
        let on_disk = self.hot(self.reads).filter_map(|(extent, read)| {
            home_on(DeviceClass::Hdd, extent, view).map(|disk| (read, disk, extent))
        });
        let comes = |&(read, _, extent): &(u8, _, ExtentId)| {
            self.wanted_by(read, self.writes.hotness(extent, self.half)) == Wanted::Ssd
        };
        let mut on: Vec<_> = on_disk.filter(comes).collect();
        let ssds = || view.devices.iter().filter(|device| device.class == DeviceClass::Ssd);
        let free: u64 = ssds().map(|ssd| u64::from(ssd.free)).sum();
        let awaited: u32 = ssds().map(|ssd| room.awaited(ssd.id)).sum();
        round.awaits_room = on.len() as u64 > free && awaited > 0;
        on.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.2.cmp(&b.2)));
        on.truncate(free as usize);
        on
    }

    fn hot<'t>(&'t self, table: &'t Table) -> impl Iterator<Item = (ExtentId, u8)> + 't {
        table.working_set(self.half).filter(|(_, hotness)| *hotness > self.constants.threshold_h)
    }

    /// Free slots that a device lacks to its water mark. A disk has none.
    pub fn lacking(&self, device: &DeviceView, room: &Room, view: &View) -> u32 {
        if device.class != DeviceClass::Ssd {
            return 0;
        }
        let mark =
            self.constants.water_mark_of(view.extent_size * u64::from(device.slots)) / view.extent_size;
        (mark as u32).saturating_sub(device.free + room.awaited(device.id))
    }
}

impl Search {
    /// Has it look at all extents once more, from where it is.
    pub fn begin(&mut self) {
        self.seen = 0;
    }

    /// The next extent; none if it has seen all.
    fn next(&mut self, extents: u32) -> Option<ExtentId> {
        if self.seen >= extents {
            return None;
        }
        let extent = ExtentId(self.hand % extents);
        (self.hand, self.seen) = ((self.hand + 1) % extents, self.seen + 1);
        Some(extent)
    }
}

impl Round {
    /// Gives each extent a device of a class, the roomiest first and neighbours the same one, as long as
    /// there is room. A move between nodes costs the network beside what one inside a node costs: only what
    /// has no room on its own node leaves it, after all that has. All are in the order in which they leave
    /// their devices.
    fn spread(&mut self, mut extents: Vec<(DeviceId, ExtentId)>, class: DeviceClass, view: &View) {
        let mut targets: BTreeMap<Option<NodeId>, Vec<Target>> = BTreeMap::new();
        for device in view.devices.iter().filter(|device| device.class == class) {
            targets.entry(device.node).or_default().push(Target { free: device.free, device: device.id });
        }
        extents.sort_unstable();
        let mut left = Vec::new();
        for run in runs(&extents, view) {
            let inside = targets.get_mut(&view.devices[run[0].0.index()].node);
            let placed = self.place(run, inside.into_iter().flatten());
            left.extend_from_slice(&run[placed..]);
        }
        for run in runs(&left, view) {
            self.place(run, targets.values_mut().flatten());
        }
    }

    /// Has extents of a run go to the roomiest of these devices. Returns how many it has room for.
    fn place<'t>(
        &mut self,
        run: &[(DeviceId, ExtentId)],
        targets: impl Iterator<Item = &'t mut Target>,
    ) -> usize {
        let Some(Target { free, device }) = targets.max_by_key(|target| target.free) else { return 0 };
        let placed = run.len().min(*free as usize);
        for &(source, extent) in &run[..placed] {
            *free -= 1;
            self.moves.push(Move::Migrate { extent, target: *device });
            self.leaves.push((extent, source));
        }
        placed
    }
}

impl Room {
    pub fn new(devices: usize) -> Room {
        Room { devices: vec![Expected::default(); devices], changed: Nanos::ZERO, looked: Nanos::ZERO }
    }

    /// Looks at what is free now.
    pub fn look(&mut self, view: &View) {
        self.looked = view.now;
        let is_late = view.now >= self.changed + LATEST;
        for (expected, device) in self.devices.iter_mut().zip(view.devices) {
            let came = device.free.saturating_sub(expected.seen);
            if came > 0 {
                self.changed = view.now;
            }
            expected.freed = if is_late { 0 } else { expected.freed.saturating_sub(came) };
            expected.seen = device.free;
        }
    }

    /// A move has freed a slot.
    pub fn frees(&mut self, device: DeviceId) {
        self.devices[device.index()].freed += 1;
        self.changed = self.looked;
    }

    /// Slots of a device that will be free.
    pub fn awaited(&self, device: DeviceId) -> u32 {
        self.devices[device.index()].freed
    }
}

/// Extents that leave the same device, so many that they are one run.
fn runs<'e>(
    extents: &'e [(DeviceId, ExtentId)],
    view: &View,
) -> impl Iterator<Item = &'e [(DeviceId, ExtentId)]> {
    let longest = (RUN / view.extent_size).max(1) as usize;
    extents.chunk_by(|a, b| a.0 == b.0).flat_map(move |from_one| from_one.chunks(longest))
}

/// The device of an extent, if it is of this class.
fn home_on(class: DeviceClass, extent: ExtentId, view: &View) -> Option<DeviceId> {
    view.homes.home(extent).filter(|home| view.devices[home.index()].class == class)
}
