//! What the loss of each device would cost: a part of [`State`].
//!
//! Counters of written bytes by the devices of their required copies change with the map, so that a status
//! scans nothing. The audit counts anew and compares. Beside them, ranges of which the second copy is behind
//! are looked up, [`LOOKED_UP`] pieces at most.

use super::State;
use braid_base::{BlockId, Bytes, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::ops::Range;

/// Pieces of extents with a second copy that is behind whose home is looked up for a status: 2 ms. Of 128 KiB
/// extents these are 2 GiB.
const LOOKED_UP: usize = 1 << 14;

/// Written bytes of the volume by the device that holds them, and the device of their second copy; none for
/// bytes that have one copy.
#[derive(Clone, Default, Debug)]
pub(crate) struct Exposed(HashMap<(DeviceId, Option<DeviceId>), u64, FixedState>);

/// What the loss of a device would cost.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Exposure {
    /// Bytes that no other device has: homes without a second copy on a current device, and dirty extra
    /// copies.
    pub alone: Bytes,
    /// Bytes of homes that the second copy lacks, at most: exact up to [`LOOKED_UP`] pieces.
    pub behind: Bytes,
}

impl Exposed {
    fn add(&mut self, devices: (DeviceId, Option<DeviceId>), bytes: Bytes) {
        *self.0.entry(devices).or_default() += bytes.0;
    }

    fn take(&mut self, devices: (DeviceId, Option<DeviceId>), bytes: Bytes) {
        let known = self.0.entry(devices).or_default();
        *known = known.saturating_sub(bytes.0);
    }
}

/// Whether two counts are the same.
impl PartialEq for Exposed {
    fn eq(&self, other: &Exposed) -> bool {
        let has = |of: &Exposed, devices, bytes| of.0.get(devices).copied().unwrap_or_default() == bytes;
        self.0.iter().all(|(devices, &bytes)| has(other, devices, bytes))
            && other.0.iter().all(|(devices, &bytes)| has(self, devices, bytes))
    }
}

impl State {
    /// The required copies of an extent change.
    pub(super) fn count_exposed(&mut self, extent: ExtentId, before: &Entry, now: &Entry) {
        if let Some((devices, bytes)) = self.written_of(extent, before) {
            self.exposed.take(devices, bytes);
        }
        if let Some((devices, bytes)) = self.written_of(extent, now) {
            self.exposed.add(devices, bytes);
        }
        if self.map.has_extras(extent) && self.extras.dirty() > 0 {
            for block in self.shape.blocks_of(extent) {
                if let Some(extra) = self.extras.get(block).filter(|extra| extra.dirty) {
                    self.count_exposed_block(block, (Some(extra), before), (Some(extra), now));
                }
            }
        }
    }

    /// The extra copy of a block changes, or the required copies of its extent.
    pub(super) fn count_exposed_block(
        &mut self,
        block: BlockId,
        (extra_before, before): (Option<Extra>, &Entry),
        (extra, now): (Option<Extra>, &Entry),
    ) {
        for (device, bytes) in self.dirty_of(block, extra_before, before) {
            self.exposed.take((device, None), bytes);
        }
        for (device, bytes) in self.dirty_of(block, extra, now) {
            self.exposed.add((device, None), bytes);
        }
    }

    /// Counts what recovery found.
    pub fn count_all_exposed(&mut self) {
        self.exposed = self.exposed_anew();
    }

    /// Whether the counters are what a count of the whole map gives. For audits.
    pub fn is_exposed_counted(&self) -> bool {
        self.exposed == self.exposed_anew()
    }

    /// What the loss of each device would cost. A device that is not current is lost already.
    pub fn exposures(&self, is_current: impl Fn(DeviceId) -> bool) -> Vec<Exposure> {
        let mut exposures = vec![Exposure::default(); self.views.len()];
        // Homes whose second copy is on a current device.
        let mut paired = vec![Bytes::ZERO; self.views.len()];
        for (&(home, second), &bytes) in &self.exposed.0 {
            match (is_current(home), second.filter(|&second| is_current(second))) {
                (true, None) => exposures[home.index()].alone += Bytes(bytes),
                (true, Some(_)) => paired[home.index()] += Bytes(bytes),
                (false, Some(second)) => exposures[second.index()].alone += Bytes(bytes),
                (false, None) => {}
            }
        }
        let (mut looked_up, mut seen) = (0, Bytes::ZERO);
        let on = |slot| self.device_of(slot).filter(|&device| is_current(device));
        let ranges = self.behind.ranges().iter();
        let pieces = ranges.flat_map(|range| self.shape.pieces(range.start, range.end - range.start));
        for piece in pieces.take(LOOKED_UP) {
            (looked_up, seen) = (looked_up + 1, seen + piece.len());
            if piece.extent.0 >= self.shape.extents() {
                continue;
            }
            let entry = self.map.get(piece.extent);
            if let (Some(home), Some(_)) = (on(entry.home), on(entry.second)) {
                exposures[home.index()].behind += self.valid_within(piece.extent, &entry, &piece.range);
            }
        }
        if looked_up == LOOKED_UP {
            let rest = self.behind.total() - seen;
            for (exposure, paired) in exposures.iter_mut().zip(paired) {
                exposure.behind += rest.min(paired.saturating_sub(exposure.behind));
            }
        }
        exposures
    }

    fn exposed_anew(&self) -> Exposed {
        let mut exposed = Exposed::default();
        if self.map.is_of_adopted()
            && let Some(disk) = self.device_of(self.map.get(ExtentId(0)).home)
        {
            exposed.add((disk, None), self.shape.volume_size);
        }
        for (extent, entry) in self.map.iter() {
            if let Some((devices, bytes)) = self.written_of(extent, &entry) {
                exposed.add(devices, bytes);
            }
        }
        for (block, extra) in self.extras.all().filter(|(_, extra)| extra.dirty) {
            let entry = self.map.get(self.shape.range_of(block).extent);
            for (device, bytes) in self.dirty_of(block, Some(extra), &entry) {
                exposed.add((device, None), bytes);
            }
        }
        exposed
    }

    /// The devices that hold an extent, and how much of it was written.
    fn written_of(&self, extent: ExtentId, entry: &Entry) -> Option<((DeviceId, Option<DeviceId>), Bytes)> {
        let home = self.device_of(entry.home)?;
        let bytes = self.valid_within(extent, entry, &(Bytes::ZERO..self.shape.extent_size));
        Some(((home, self.device_of(entry.second)), bytes))
    }

    /// The devices whose loss takes the newest bytes of a block, beside what [`State::written_of`] counts:
    /// the device of the dirty extra copy; and the device of the home, if the block was never written there,
    /// as an extent whose home is lost is lost with its extra copies.
    fn dirty_of(
        &self,
        block: BlockId,
        extra: Option<Extra>,
        entry: &Entry,
    ) -> impl Iterator<Item = (DeviceId, Bytes)> + use<> {
        let piece = self.shape.range_of(block);
        let on = extra.filter(|extra| extra.dirty).and_then(|extra| self.device_of(extra.slot));
        let home = on.and_then(|_| self.device_of(entry.home));
        let is_valid = self.shape.parts_touched(&piece.range) & !entry.valid == 0;
        let of_home = home.filter(|_| !is_valid);
        let of_extra = on.filter(|&device| home != Some(device));
        let len = self.within_volume(piece.extent, &piece.range);
        of_extra.into_iter().chain(of_home).map(move |device| (device, len))
    }

    /// How much of a range of an extent was written.
    fn valid_within(&self, extent: ExtentId, entry: &Entry, range: &Range<Bytes>) -> Bytes {
        let (mut at, mut sum) = (range.start, Bytes::ZERO);
        while at < range.end {
            let (is_valid, end) = self.shape.run(entry.valid, at, range.end);
            if is_valid {
                sum += self.within_volume(extent, &(at..end));
            }
            at = end;
        }
        sum
    }

    /// How much of a range of an extent guests can address.
    fn within_volume(&self, extent: ExtentId, range: &Range<Bytes>) -> Bytes {
        let end = self.shape.volume_size.saturating_sub(self.shape.bytes_of(extent).start).min(range.end);
        end.saturating_sub(range.start)
    }

    fn device_of(&self, slot: SlotNumber) -> Option<DeviceId> {
        self.space.locate(slot).map(|place| place.device)
    }
}
