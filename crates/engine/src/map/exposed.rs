//! Cost of the loss of each device. Part of [`State`].
//!
//! Written bytes are counted by the devices of their required copies. The counters change with the map, so a
//! status scans nothing. The audit counts anew and compares. In addition, ranges with a stale second copy are
//! looked up, at most [`LOOKED_UP`] pieces.

use super::State;
use braid_base::{BlockId, Bytes, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::ops::Range;

/// Maximum number of pieces with a stale second copy whose home a status looks up: 2 ms. With extents of 128
/// KiB, 2 GiB.
const LOOKED_UP: usize = 1 << 14;

/// Written bytes of the volume by the device of the home and the device of the second copy; `None` for a
/// single copy.
#[derive(Clone, Default, Debug)]
pub(crate) struct Exposed(HashMap<(DeviceId, Option<DeviceId>), u64, FixedState>);

/// Cost of the loss of a device.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Exposure {
    /// Bytes on no other device: homes without a second copy on a current device, and dirty extra copies.
    pub alone: Bytes,
    /// Upper bound for bytes of homes with a stale second copy. Exact up to [`LOOKED_UP`] pieces.
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

/// Equal if all counts are equal; a missing entry counts as 0.
impl PartialEq for Exposed {
    fn eq(&self, other: &Exposed) -> bool {
        let has = |of: &Exposed, devices, bytes| of.0.get(devices).copied().unwrap_or_default() == bytes;
        self.0.iter().all(|(devices, &bytes)| has(other, devices, bytes))
            && other.0.iter().all(|(devices, &bytes)| has(self, devices, bytes))
    }
}

impl State {
    /// Counts a change of an extent's required copies.
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
                    self.count_exposed_block(block, Some(extra), before, Some(extra), now);
                }
            }
        }
    }

    /// Counts a change of a block's extra copy, or of the required copies of the block's extent.
    pub(super) fn count_exposed_block(
        &mut self,
        block: BlockId,
        extra_before: Option<Extra>,
        before: &Entry,
        extra: Option<Extra>,
        now: &Entry,
    ) {
        for (device, bytes) in self.dirty_of(block, extra_before, before) {
            self.exposed.take((device, None), bytes);
        }
        for (device, bytes) in self.dirty_of(block, extra, now) {
            self.exposed.add((device, None), bytes);
        }
    }

    /// Counts everything found by recovery.
    pub fn count_all_exposed(&mut self) {
        self.exposed = self.exposed_anew();
    }

    /// True if the counters equal a count of the whole map. For audits.
    pub fn is_exposed_counted(&self) -> bool {
        self.exposed == self.exposed_anew()
    }

    /// Returns the cost of the loss of each device. A device that is not current is lost already.
    pub fn exposures(&self, is_current: impl Fn(DeviceId) -> bool) -> Vec<Exposure> {
        let mut exposures = vec![Exposure::default(); self.views.len()];
        // Homes with a second copy on a current device.
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

    /// Devices of an extent's required copies, and the number of written bytes.
    fn written_of(&self, extent: ExtentId, entry: &Entry) -> Option<((DeviceId, Option<DeviceId>), Bytes)> {
        let home = self.device_of(entry.home)?;
        let bytes = self.valid_within(extent, entry, &(Bytes::ZERO..self.shape.extent_size));
        Some(((home, self.device_of(entry.second)), bytes))
    }

    /// Devices whose loss takes the newest bytes of a block, in addition to [`State::written_of`]. The device
    /// of the dirty extra copy counts. The device of the home counts too if the block's parts on the home are
    /// not all valid: an extent with a lost home is lost with its extra copies.
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

    /// Number of written bytes in a range of an extent.
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

    /// Number of bytes in a range of an extent within the volume's size.
    fn within_volume(&self, extent: ExtentId, range: &Range<Bytes>) -> Bytes {
        let end = self.shape.volume_size.saturating_sub(self.shape.bytes_of(extent).start).min(range.end);
        end.saturating_sub(range.start)
    }

    fn device_of(&self, slot: SlotNumber) -> Option<DeviceId> {
        self.space.locate(slot).map(|place| place.device)
    }
}
