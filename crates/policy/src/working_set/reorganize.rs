//! Algorithm 2: the target of each extent (section III-C).
//!
//! ```text
//! for each item in the read region's table:   hotness > H, on a disk: to an SSD.
//!                                             hotness < L, on an SSD: to a disk, through a delayed strategy.
//! for each item in the write region's table:  hotness > H, on an SSD: to a disk.
//! ```
//!
//! The algorithm works in rounds. Each round compares the homes of extents with the targets from the tables.
//! A round first makes room, then fills it. Extents written often leave the SSDs, then cold extents while an
//! SSD is below its water mark. Then extents read often come to the SSDs, the hottest first if not all have
//! room. The reorganization ends when a round finds nothing to do. The end is certain, because each move
//! reduces a potential by at least one:
//!
//! ```text
//! potential = 2 × (extents that are hot and on the wrong class of device) + Σ over SSDs (free slots that it lacks to its water mark)
//! ```
//!
//! A move to an SSD subtracts 2 and adds at most 1. A hot extent that leaves an SSD subtracts 2. A cold
//! extent leaves only while free slots are below the mark, and subtracts 1.
//!
//! In the paper a cold item is marked, and moves once its SSD is below the mark (`cold=marked`: `marks.rs`).
//! With `cold=unread` cold extents are searched at that time, in the order of their addresses. An extent
//! without a row in any table is cold, too: its hotness is 0.

use super::marks::Marks;
use super::settings::{Both, Constants};
use super::table::Table;
use crate::{DeviceView, Move, View};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, Nanos, NodeId};
use std::collections::BTreeMap;

/// Input of a round.
pub struct Tables<'a> {
    pub constants: &'a Constants,
    pub reads: &'a Table,
    pub writes: &'a Table,
    /// Present half of the window, for both tables.
    pub half: u32,
    /// Extents allowed to leave as cold; `None` if all cold extents may leave.
    pub marks: Option<&'a Marks>,
}

/// Target of an extent, by the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Read often.
    Ssd,
    /// Written often.
    Hdd,
    /// Cold: leaves an SSD that is below its water mark.
    HddInNeed,
    /// Neither hot nor cold.
    Anywhere,
}

/// Slots freed by moves but not yet free. A freed slot becomes free after the change is durable and, on some
/// devices, at the next checkpoint. Without this count, cold extents would leave an SSD until its free slots
/// are seen to grow.
pub struct FreedSlots {
    devices: Vec<Expected>,
    /// Last time that a move freed a slot, or that a freed slot became free.
    changed: Nanos,
    /// Time of the last look.
    looked: Nanos,
}

#[derive(Clone, Copy, Default)]
struct Expected {
    /// Free slots at the last look.
    seen: u32,
    /// Slots freed by moves, beyond `seen`.
    freed: u32,
}

/// Position of the search for cold extents, kept from round to round.
#[derive(Default)]
pub struct ColdSearch {
    hand: u32,
    /// Extents examined since the last restart of the search.
    seen: u32,
}

/// Moves of a round, and work left over.
#[derive(Default)]
pub struct RoundWork {
    pub moves: Vec<Move>,
    /// Source device of each extent, sorted by extent.
    pub leaves: Vec<(ExtentId, DeviceId)>,
    /// Extents to be moved to the SSDs: source disk and hotness of each.
    pub gains: Vec<(DeviceId, u8)>,
    /// True if an SSD lacks free slots and the search for cold extents has not covered the volume.
    pub searches: bool,
    /// True if further moves wait for slots already freed.
    pub awaits_room: bool,
}

/// A possible target device.
struct Target {
    free: u32,
    device: DeviceId,
}

/// Extents examined by a round in search of cold extents: about a millisecond.
const SEARCHED: u32 = 1 << 14;
/// Longest time until a slot freed by a move is free: two checkpoints.
const LATEST: Nanos = Nanos::from_secs(60);
/// Bytes of adjacent extents that go to the same device and form one run.
const RUN: Bytes = Bytes(256 << 10);

impl Tables<'_> {
    /// Returns the target of an extent.
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

    /// Returns the next round.
    pub fn round(&self, view: &View, room: &FreedSlots, search: &mut ColdSearch) -> RoundWork {
        let mut round = RoundWork::default();
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

    /// Returns extents on SSDs that are hot in the write region.
    fn written_often(&self, view: &View) -> Vec<(DeviceId, ExtentId)> {
        let on_ssd = self.hot(self.writes).filter_map(|(extent, write)| {
            home_on(DeviceClass::Ssd, extent, view).map(|ssd| (ssd, extent, write))
        });
        let leaves = |&(_, extent, write): &(_, ExtentId, u8)| {
            self.wanted_by(self.reads.hotness(extent, self.half), write) == Wanted::Hdd
        };
        on_ssd.filter(leaves).map(|(ssd, extent, _)| (ssd, extent)).collect()
    }

    /// Adds cold extents of each SSD to `off`, until the SSD has no lack of free slots once all extents of
    /// `off` have left. True if slots are still lacking.
    fn find_cold(
        &self,
        view: &View,
        room: &FreedSlots,
        search: &mut ColdSearch,
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

    /// Returns the hottest extents on disks in the read region, as many as the SSDs have room for.
    fn read_often(
        &self,
        view: &View,
        room: &FreedSlots,
        round: &mut RoundWork,
    ) -> Vec<(u8, DeviceId, ExtentId)> {
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

    /// Number of free slots missing up to a device's water mark. Always 0 on a disk.
    pub fn lacking(&self, device: &DeviceView, room: &FreedSlots, view: &View) -> u32 {
        if device.class != DeviceClass::Ssd {
            return 0;
        }
        let mark =
            self.constants.water_mark_of(view.extent_size * u64::from(device.slots)) / view.extent_size;
        (mark as u32).saturating_sub(device.free + room.awaited(device.id))
    }
}

impl ColdSearch {
    /// Restarts the search from its present position, for all extents.
    pub fn begin(&mut self) {
        self.seen = 0;
    }

    /// Returns the next extent; `None` after all extents.
    fn next(&mut self, extents: u32) -> Option<ExtentId> {
        if self.seen >= extents {
            return None;
        }
        let extent = ExtentId(self.hand % extents);
        (self.hand, self.seen) = ((self.hand + 1) % extents, self.seen + 1);
        Some(extent)
    }
}

impl RoundWork {
    /// Gives each extent a target device of a class while there is room: the roomiest device first,
    /// neighbours on the same device. A move between nodes costs the network in addition to a move within a
    /// node. An extent therefore leaves its node only if the node has no room for the extent, and after all
    /// moves within nodes. Moves are in the order of the source devices.
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

    /// Moves extents of a run to the roomiest of the targets. Returns how many extents have room.
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

impl FreedSlots {
    pub fn new(devices: usize) -> FreedSlots {
        FreedSlots { devices: vec![Expected::default(); devices], changed: Nanos::ZERO, looked: Nanos::ZERO }
    }

    /// Updates the counts by the slots free now.
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

    /// Records that a move has freed a slot.
    pub fn frees(&mut self, device: DeviceId) {
        self.devices[device.index()].freed += 1;
        self.changed = self.looked;
    }

    /// Number of slots of a device that will become free.
    pub fn awaited(&self, device: DeviceId) -> u32 {
        self.devices[device.index()].freed
    }
}

/// Splits extents into runs with the same source device, of at most [`RUN`].
fn runs<'e>(
    extents: &'e [(DeviceId, ExtentId)],
    view: &View,
) -> impl Iterator<Item = &'e [(DeviceId, ExtentId)]> {
    let longest = (RUN / view.extent_size).max(1) as usize;
    extents.chunk_by(|a, b| a.0 == b.0).flat_map(move |from_one| from_one.chunks(longest))
}

/// Returns the home of an extent, if on a device of `class`.
fn home_on(class: DeviceClass, extent: ExtentId, view: &View) -> Option<DeviceId> {
    view.homes.home(extent).filter(|home| view.devices[home.index()].class == class)
}
