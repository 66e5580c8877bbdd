//! Prepares another size of the volume: admission, and places for longer metadata.
//!
//! The size changes when the volume closes, while nothing else does. Structures with another shape in the
//! larger or smaller volume (images of the map, the table of spans, double-write areas) are written whole to
//! free slots ([`super::fresh`]). Then the last superblocks name the new places together with the new size.
//! The change is one step: a power cut leaves the volume with the old size and its old structures, or with
//! the new size and the new structures. The next opening frees the old places.
//!
//! A shrunk volume loses nothing: only addresses without data may be cut off.

use super::add::invalid;
use crate::copier::IN_A_ROW;
use crate::core::{Core, Upkeep};
use crate::create::room;
use crate::devices::Devices;
use crate::map::Space;
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result, Volume};
use braid_base::{Bytes, DeviceId, ExtentId, written};
use braid_format::layout::{self, double_write_len, intents_len};
use braid_format::map_page::Entry;
use braid_format::superblock::{DeviceState, Features, Layout, Region, RegionKind, Superblock, check_sizes};
use braid_format::{SlotNumber, intent_page, map_summary};
use braid_policy::DeviceView;
use braid_runtime::{Arena, Device, Runtime, yield_now};
use std::collections::BTreeMap;

/// Number of extents that no volume reaches.
const MOST_EXTENTS: u32 = u32::MAX / 2;

/// A prepared change of the size.
pub(crate) struct Resizing {
    /// Size afterwards.
    pub size: Bytes,
    span_extents: u32,
    incompat: u64,
    /// Structures in new places, each instead of the same copy in its old place.
    pub fresh: Vec<Region>,
    /// Slots taken for the new places: device, first slot, number.
    taken: Vec<(DeviceId, u32, u32)>,
}

impl Resizing {
    /// Applies the change to a superblock. Void places stay reserved.
    pub fn apply(&self, superblock: &mut Superblock) {
        superblock.volume_size = self.size;
        superblock.span_extents = self.span_extents;
        superblock.features.incompat |= self.incompat;
        let is_left = |old: &Region| self.fresh.iter().any(|fresh| old.is(fresh.kind, fresh.copy));
        superblock.regions.retain(|region| !is_left(region));
        superblock.regions.extend(&self.fresh);
    }
}

/// Data beyond an end of the volume.
struct Beyond {
    data: Bytes,
    /// End of the last data.
    end: Bytes,
}

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Largest size that the volume could have on its devices under its policy, and at least the present
    /// size.
    pub fn largest(&self) -> Bytes {
        self.core.upkeep.largest().max(self.core.store.shape.volume_size)
    }

    /// Checks that the volume can have another size, and takes room for its metadata. Guests may work
    /// meanwhile. [`Volume::complete_resize`] and [`Volume::close_resized`] carry the change out,
    /// [`Volume::abandon_resize`] gives the room back.
    ///
    /// # Errors
    /// - `Invalid` for a size that no volume has, data beyond a smaller size, an adopted disk, and epochs.
    /// - `NoSpace` if the devices have no room.
    /// - `Degraded` if a device or a region of metadata is not in use.
    ///
    /// Nothing has changed then.
    pub(crate) async fn prepare_resize(&self, size: Bytes) -> Result<Resizing> {
        let core = &self.core;
        core.jobs.begin();
        let prepared = core.prepare_resize(size).await;
        core.jobs.end();
        prepared
    }

    /// Ends the work before [`Volume::close_resized`]. No guest may use the volume meanwhile.
    pub(crate) async fn complete_resize(&self, resizing: &Resizing) -> Result<()> {
        match resizing.size > self.core.store.shape.volume_size {
            true => self.core.zero_after_end().await,
            false => Ok(()),
        }
    }

    /// Gives the room for a resize back.
    pub(crate) fn abandon_resize(&self, resizing: &Resizing) {
        let mut state = self.core.store.state.borrow_mut();
        resizing.taken.iter().for_each(|&(device, first, count)| state.release_run(device, first, count));
    }
}

impl Shape {
    /// Data of an extent. An extent without a known part counts as a whole.
    fn held_by(&self, extent: ExtentId, entry: &Entry, has_extras: bool) -> Beyond {
        let Entry { home, valid, partly_lost, .. } = *entry;
        let range = self.bytes_of(extent);
        let is_known = home != SlotNumber::LOST && !partly_lost && !has_extras && valid != 0;
        let part = |number: u32| self.part_size * u64::from(number);
        let (data, end) = match is_known {
            true => (part(valid.count_ones()), part(u16::BITS - valid.leading_zeros())),
            false => (self.extent_size, self.extent_size),
        };
        Beyond { data, end: (range.start + end).min(self.volume_size) }
    }

    /// Number of slots for regions, by device.
    fn slots_of(&self, regions: &[Region]) -> BTreeMap<DeviceId, u32> {
        let mut lens: BTreeMap<DeviceId, Bytes> = BTreeMap::new();
        regions.iter().for_each(|region| *lens.entry(region.device).or_default() += region.len);
        let slots = |len: Bytes| len.0.div_ceil(self.extent_size.0) as u32;
        lens.into_iter().map(|(device, len)| (device, slots(len))).collect()
    }
}

impl<D: Device> Devices<D> {
    /// Superblock of the volume with another size. Fresh regions have no place yet.
    fn planned(&self, size: Bytes) -> (Superblock, Vec<Region>) {
        let before = self.superblock().clone();
        let mut planned = Superblock { volume_size: size, ..before.clone() };
        let most = u64::from(planned.extents()).div_ceil(u64::from(layout::MOST_SPANS));
        planned.span_extents = before.span_extents.max(most.next_power_of_two() as u32);
        if map_summary::group_pages(planned.map_pages()).is_some() {
            planned.features.incompat |= Features::MAP_SUMMARY;
        }
        let fresh = fresh_regions(&before, &planned);
        (planned, fresh)
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    async fn prepare_resize(&self, size: Bytes) -> Result<Resizing> {
        let _alone = self.store.devices.life.acquire(1).await;
        self.upkeep.refuse_closing()?;
        self.upkeep.refuse_resize(size)?;
        if size < self.store.shape.volume_size {
            self.refuse_data_beyond(size).await?;
        }
        self.upkeep.place_fresh(size).await
    }

    /// Refuses a smaller size if the volume holds data beyond it.
    async fn refuse_data_beyond(&self, size: Bytes) -> Result<()> {
        let Some(Beyond { data, end }) = self.data_beyond(size).await? else { return Ok(()) };
        let name = self.store.devices.superblock().name.clone();
        let least = as_argument(end.align_up(self.store.shape.block_size).min(self.store.shape.volume_size));
        invalid(format!(
            "volume '{name}' holds {data} of data beyond {size}: shrink the file system, and discard the rest (blkdiscard \
             --offset {}), or use at least {least}, where the data ends",
            size.0
        ))
    }

    /// Data beyond an end of the volume, if any.
    async fn data_beyond(&self, size: Bytes) -> Result<Option<Beyond>> {
        let (mut data, mut end) = (Bytes::ZERO, Bytes::ZERO);
        let first = size.0.div_ceil(self.store.shape.extent_size.0) as u32;
        for extent in (first..self.store.shape.extents()).map(ExtentId) {
            let (entry, has_extras) = {
                let state = self.store.state.borrow();
                (state.map.get(extent), state.map.has_extras(extent))
            };
            if entry != Entry::default() || has_extras {
                let held = self.store.shape.held_by(extent, &entry, has_extras);
                data += held.data;
                end = held.end;
            }
            if extent.0.is_multiple_of(IN_A_ROW) {
                yield_now().await;
            }
        }
        if !size.is_aligned(self.store.shape.extent_size)
            && let Some(held) = self.data_in_last(size).await?
        {
            data += held.data;
            end = end.max(held.end);
        }
        Ok((data > Bytes::ZERO).then_some(Beyond { data, end }))
    }

    /// Bytes other than zero in the extent of `size`, from `size` on.
    async fn data_in_last(&self, size: Bytes) -> Result<Option<Beyond>> {
        let extent = self.store.shape.extent_of(size);
        let end = self.store.shape.bytes_of(extent).end.min(self.store.shape.volume_size);
        let entry = self.store.state.borrow().map.get(extent);
        if entry.home == SlotNumber::LOST || entry.partly_lost {
            return Ok(Some(Beyond { data: end - size, end }));
        }
        let arena = Arena::new(self.store.shape.extent_size.min(Arena::LARGEST));
        let (mut at, mut found) = (size, None);
        while at < end {
            let len = (end - at).min(Arena::LARGEST).min(self.store.shape.extent_size);
            let bytes = arena.alloc(len).await;
            self.read(at, &bytes).await?;
            let last = bytes.with_bytes(|bytes| bytes.iter().rposition(|&byte| byte != 0));
            found = last.map(|last| at + Bytes::of_len(last + 1)).or(found);
            at += len;
        }
        Ok(found.map(|end| Beyond { data: end - size, end }))
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Refuses a size, a volume, or a state of the volume that allows no resize.
    fn refuse_resize(&self, size: Bytes) -> Result<()> {
        let superblock = self.store.devices.superblock();
        let name = &superblock.name;
        if superblock.adopted().is_some() {
            return invalid(format!(
                "volume '{name}' is a disk with its contents, and has the size of the disk: {}",
                superblock.volume_size
            ));
        }
        if self.extents.active_epochs().is_some()
            || self.policy.borrow().keeps_epochs()
            || self.extents.is_recovering()
        {
            return invalid(format!(
                "volume '{name}' keeps epochs on a disk, and the size cannot change meanwhile: choose another \
                 order first (braid policy {name} pass), and order=epoch again afterwards"
            ));
        }
        check_sizes(size, superblock.extent_size, superblock.block_size).or_else(invalid)?;
        self.store.devices.refuse_unfit()?;
        let largest = self.largest();
        if size <= largest.max(superblock.volume_size) {
            return Ok(());
        }
        let can = match largest > superblock.volume_size {
            true => format!("use at most {}, or add a device first", as_argument(largest)),
            false => "add a device first".to_owned(),
        };
        let text = format!(
            "volume '{name}' cannot have {size}: the devices have room for {} under policy '{}'; {can} (braid device add {name} \
             --hdd PATH)",
            largest.max(superblock.volume_size),
            self.policy.borrow().name()
        );
        Err(Error::new(ErrorKind::NoSpace, text))
    }

    /// Largest volume under the active policy. Old and new metadata exist at the same time.
    fn largest(&self) -> Bytes {
        let superblock = self.store.devices.superblock().clone();
        if superblock.adopted().is_some() {
            return superblock.volume_size;
        }
        let limit = self.store.shape.extent_size * u64::from(MOST_EXTENTS);
        let mut views = self.store.state.borrow().views.clone();
        let keeps_addresses = |view: &DeviceView| superblock.devices[view.id.index()].layout == Layout::Tail;
        if views.iter().any(keeps_addresses) {
            let space = Space::new(&Superblock { volume_size: limit, ..superblock.clone() });
            let larger = views.iter_mut().filter(|view| keeps_addresses(view) && view.slots > 0);
            larger.for_each(|view| view.slots = space.free(view.id));
        }
        let most = |views: &[DeviceView]| {
            let all: Vec<DeviceView> =
                views.iter().map(|view| DeviceView { free: view.slots, ..*view }).collect();
            let (policy, &Superblock { extent_size, copies, .. }) = (self.policy.borrow(), &superblock);
            room(&all, &superblock.devices, &**policy, extent_size, copies).0.min(limit)
        };
        let first = most(&views).max(self.store.shape.extent_size);
        for (device, count) in self.store.shape.slots_of(&self.store.devices.planned(first).1) {
            let view = &mut views[device.index()];
            view.slots = view.slots.saturating_sub(count);
        }
        most(&views)
    }

    /// Takes slots for the fresh regions, on the devices of the old places.
    async fn place_fresh(&self, size: Bytes) -> Result<Resizing> {
        let (mut planned, mut fresh) = self.store.devices.planned(size);
        let mut taken: Vec<(DeviceId, u32, u32)> = Vec::new();
        let give_back = |taken: &[(DeviceId, u32, u32)]| {
            let mut state = self.store.state.borrow_mut();
            taken.iter().for_each(|&(device, first, count)| state.release_run(device, first, count));
        };
        for (device, count) in self.store.shape.slots_of(&fresh) {
            let run = self.make_run(device, count, planned.extents()).await;
            let Some(first) = run.inspect_err(|_| give_back(&taken))? else {
                give_back(&taken);
                let text = format!(
                    "{} has no room for {count} extents side by side, the metadata of a volume of {size}: discard unused data \
                     (fstrim), or add a device",
                    self.store.member(device).describe()
                );
                return Err(Error::new(ErrorKind::NoSpace, text));
            };
            taken.push((device, first, count));
            let mut offset = self.store.member(device).slot_offset(first, self.store.shape.extent_size);
            for region in fresh.iter_mut().filter(|region| region.device == device) {
                region.offset = offset;
                offset += region.len;
            }
        }
        let incompat = planned.features.incompat & Features::MAP_SUMMARY;
        let resizing = Resizing { size, span_extents: planned.span_extents, incompat, fresh, taken };
        resizing.apply(&mut planned);
        match planned.verify() {
            Ok(()) => Ok(resizing),
            Err(wrong) => {
                give_back(&resizing.taken);
                let name = &planned.name;
                invalid(format!("volume '{name}' cannot have {size} on its devices: {wrong}"))
            }
        }
    }
}

impl<D: Device> Devices<D> {
    /// Refuses to change the size while a device or a region is not in use: after the change, its metadata
    /// would belong to a volume of another size.
    pub(super) fn refuse_unfit(&self) -> Result<()> {
        let superblock = self.superblock();
        let name = &superblock.name;
        let is_fit = |state| matches!(state, DeviceState::Active | DeviceState::Slow | DeviceState::Removed);
        let degraded = |text: String| Err(Error::new(ErrorKind::Degraded, text));
        if let Some(member) = self.iter().find(|member| !is_fit(member.state())) {
            let remedy = match member.state() {
                DeviceState::Draining => "wait until the device is removed",
                DeviceState::Returning => "wait until the device is up to date",
                _ => "bring the device back, replace the device or remove the device first",
            };
            return degraded(format!(
                "the size of volume '{name}' cannot change while {} is {}: {remedy} (braid status {name})",
                member.describe(),
                member.state()
            ));
        }
        if let Some(region) = superblock.void_regions().next() {
            return degraded(format!(
                "the size of volume '{name}' cannot change while a copy of its metadata is missing ({region}): wait until \
                 the copy is rebuilt, or replace {}",
                region.device
            ));
        }
        Ok(())
    }
}

/// Structures of the volume that have another shape, or lack room, in the planned volume. Offsets are those
/// of the old places.
fn fresh_regions(before: &Superblock, planned: &Superblock) -> Vec<Region> {
    let has_larger_map = planned.map_pages() > before.map_pages();
    let is_summary_moved =
        planned.has_map_summary() && (planned.map_pages() != before.map_pages() || !before.has_map_summary());
    let has_other_spans = planned.span_extents != before.span_extents
        || intent_page::pages(planned.spans()) > intent_page::pages(before.spans());
    let (map, intents) = (planned.map_len(), intents_len(planned.spans()));
    let area = double_write_len((map.max(intents) / braid_format::map_page::SIZE) as u32);
    let fresh = |region: &Region| {
        let len = match region.kind {
            RegionKind::Map => (has_larger_map || is_summary_moved).then_some(map),
            RegionKind::Intents => has_other_spans.then_some(intents),
            RegionKind::DoubleWrite => (region.len < area).then_some(area),
            _ => None,
        };
        len.map(|len| Region { len, ..*region })
    };
    before.regions.iter().filter(|region| !region.void).filter_map(fresh).collect()
}

/// A size as `--size` takes it.
fn as_argument(size: Bytes) -> String {
    written(&format!("{}B", size.0))
}
