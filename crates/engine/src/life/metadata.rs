//! Moves metadata of the whole volume off a device before its removal: a copy of the journal with its proof,
//! of the map, the table of spans, the double-write area, the policy's state, and the device table. A volume
//! on an adopted disk moves nothing: its record has all of these.
//!
//! 1. Another device gives adjacent free slots, and their old contents are erased.
//! 2. From then on, every batch and every page goes to both places: the new, and the place named by the
//!    superblocks.
//! 3. A checkpoint of all pages completes the new places. Nothing is read from the old places, since their
//!    device may be lost.
//! 4. The superblocks name the new places. Until the change is durable everywhere, the old places are
//!    written, too.
//!
//! An interruption before step 4 leaves the old places active, and the new slots free.

use super::add::invalid;
use crate::buffer::buffer;
use crate::core::{Store, Upkeep};
use crate::devices::Devices;
use crate::journal::Journal;
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::layout::device_table_room;
use braid_format::superblock::{Region, RegionKind, Role, Superblock, TablePlace};
use braid_policy::Origin;
use braid_runtime::{Arena, Device, Runtime};
use std::cmp::Reverse;

/// Regions of one copy on the way to another device, or to another place on the same device.
pub(super) struct Relocation {
    pub from: DeviceId,
    pub to: DeviceId,
    /// Regions that the superblocks no longer name afterwards.
    pub old: Vec<Region>,
    pub new: Vec<Region>,
    /// New place of the device table; none if the new device has a table already, or the old device has none.
    pub table: Option<TablePlace>,
    /// Slots of the new places: first, and number.
    pub slots: (u32, u32),
}

impl Relocation {
    /// Applies the relocation to a superblock.
    fn apply(&self, superblock: &mut Superblock) {
        superblock.regions.retain(|region| !self.old.contains(region));
        superblock.regions.extend(&self.new);
        if self.from == self.to {
            return;
        }
        superblock.tables.retain(|table| table.device != self.from);
        superblock.tables.extend(self.table);
        let [from, to] = [self.from, self.to].map(DeviceId::index);
        superblock.devices[from].role = superblock.devices[from].role.without(Role::METADATA);
        superblock.devices[to].role = superblock.devices[to].role | Role::METADATA;
    }
}

/// Until the superblocks name all places, no device has the only journal: freed slots wait for a checkpoint
/// on every device.
const NO_DEVICE: DeviceId = DeviceId(u16::MAX);

impl Shape {
    /// Number of slots for regions and a device table.
    fn slots_for(&self, regions: &[Region], table: Option<Bytes>) -> u32 {
        let len: Bytes = regions.iter().map(|region| region.len).sum::<Bytes>() + table.unwrap_or_default();
        len.0.div_ceil(self.extent_size.0) as u32
    }
}

impl<D: Device> Devices<D> {
    /// Regions of a copy on a device. A cache table and a journal of epochs leave with their device.
    fn regions_of(&self, device: DeviceId, copy: u8) -> Vec<Region> {
        let superblock = self.superblock();
        let stays = [RegionKind::CacheTable, RegionKind::EpochJournal];
        let moves = |r: &&Region| r.device == device && r.copy == copy && !stays.contains(&r.kind);
        superblock.regions.iter().filter(moves).copied().collect()
    }

    /// Room for a device table on `to`, if a table moves there from `from`.
    fn table_for(&self, from: DeviceId, to: DeviceId) -> Option<Bytes> {
        let superblock = self.superblock();
        if superblock.tables.iter().any(|table| table.device == to) {
            return None;
        }
        let old = superblock.tables.iter().find(|table| table.device == from)?;
        Some(old.len.max(device_table_room(superblock.devices.len()) * 2))
    }

    fn is_named(&self, relocation: &Relocation) -> bool {
        self.superblock().regions.contains(&relocation.new[0])
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Moves all metadata of the whole volume off a leaving device.
    pub async fn move_metadata(&self, device: DeviceId) -> Result<()> {
        if !self.store.devices.holds_metadata(device) {
            return Ok(());
        }
        let _alone = self.store.devices.life.acquire(1).await;
        for copy in self.store.devices.copies_on(device) {
            if !self.store.devices.is_leaving(device) || self.jobs.are_ending() {
                return Ok(());
            }
            let relocation = self.store.begin_relocation(device, copy)?;
            self.relocate_or_stay(&relocation).await?;
            let to = self.store.member(relocation.to).describe();
            tracing::info!("metadata of {} is now on {to}", self.store.member(device).describe());
        }
        Ok(())
    }

    /// Moves regions to slots taken for them. On failure, the slots are given back, and the regions stay in
    /// place.
    pub(super) async fn relocate_or_stay(&self, relocation: &Relocation) -> Result<()> {
        let moved = self.relocate(relocation).await;
        if !self.store.devices.is_named(relocation) {
            self.durable
                .journal
                .set_places(self.store.devices.rings_of(&self.store.devices.superblock()), None);
            self.store.devices.beside.borrow_mut().clear();
            self.store.note_only_journal();
            let (first, count) = relocation.slots;
            self.store.state.borrow_mut().release_run(relocation.to, first, count);
        }
        moved
    }

    /// Devices that would get the metadata of a device, and the slots needed on each.
    ///
    /// # Errors
    /// `NoSpace` if no device has enough adjacent free slots; `Invalid` for the disk that keeps epochs, while
    /// epochs are kept or the disk is being recovered.
    pub fn metadata_targets(&self, device: DeviceId) -> Result<Vec<(DeviceId, u32)>> {
        self.refuse_epochs_on(device)?;
        let mut taken = Vec::new();
        let mut failed = None;
        for copy in self.store.devices.copies_on(device) {
            match self.store.begin_relocation(device, copy) {
                Ok(relocation) => taken.push((relocation.to, relocation.slots)),
                Err(error) => failed = Some(error),
            }
        }
        let mut state = self.store.state.borrow_mut();
        taken.iter().for_each(|&(to, (first, count))| state.release_run(to, first, count));
        match failed {
            Some(error) => Err(error),
            None => Ok(taken.into_iter().map(|(to, (_, count))| (to, count)).collect()),
        }
    }

    /// As [`Upkeep::metadata_targets`], if everything goes to a device that has not been added yet.
    pub fn metadata_on_new(&self, device: DeviceId, new: DeviceId) -> Result<Vec<(DeviceId, u32)>> {
        self.refuse_epochs_on(device)?;
        let slots = |copy: u8| {
            self.store.shape.slots_for(
                &self.store.devices.regions_of(device, copy),
                self.store.devices.table_for(device, new),
            )
        };
        Ok(self.store.devices.copies_on(device).into_iter().map(|copy| (new, slots(copy))).collect())
    }

    fn refuse_epochs_on(&self, device: DeviceId) -> Result<()> {
        let name = self.store.devices.superblock().name.clone();
        // Epochs begin again when all devices are present.
        let are_kept = self.extents.active_epochs().is_some() || self.policy.borrow().keeps_epochs();
        match self.extents.epochs.as_ref().filter(|epochs| epochs.device() == device) {
            Some(_) if self.extents.is_recovering() => invalid(format!(
                "device {device} is being recovered, and its journal alone holds bytes of the volume: \
                 remove the device after these bytes are applied (braid status {name} shows the number left)"
            )),
            Some(_) if are_kept => invalid(format!(
                "device {device} keeps epochs, and no other disk can keep epochs: remove the device under \
                 another policy (braid policy {name} pass)"
            )),
            _ => Ok(()),
        }
    }

    async fn relocate(&self, relocation: &Relocation) -> Result<()> {
        let mut planned = self.store.devices.superblock().clone();
        relocation.apply(&mut planned);
        planned.verify().map_err(|wrong| {
            let text = format!("metadata cannot move to {}: {wrong}", relocation.to);
            Error::new(ErrorKind::Invalid, text)
        })?;
        self.erase_places(relocation).await?;
        self.durable.journal.write_beside(&self.store, relocation, &planned).await;
        if !planted(Bug::MetadataNamedEarly) {
            self.durable.checkpoint().await?;
        }
        self.durable.prove().await?;
        self.durable.flush_proofs().await?;
        if self.store.devices.beside.borrow().len() < relocation.new.len() {
            let text = format!(
                "the new place of metadata on {} could not be written",
                self.store.member(relocation.to).describe()
            );
            return Err(Error::new(ErrorKind::Io, text));
        }
        if !self.store.member(relocation.to).is_filled() {
            let text = format!("{} was meanwhile excluded", self.store.member(relocation.to).describe());
            return Err(Error::new(ErrorKind::Degraded, text));
        }
        let before = self.store.devices.superblock().clone();
        self.durable
            .change_superblock(|superblock| {
                relocation.apply(superblock);
                let (now, then) =
                    (self.store.devices.rings_of(superblock), self.store.devices.rings_of(&before));
                self.durable
                    .journal
                    .set_places(now.clone(), then.into_iter().find(|ring| !now.contains(ring)));
                let old = relocation.old.iter().filter(|region| !region.void);
                self.store.devices.beside.replace(old.copied().collect());
            })
            .await?;
        let now = self.store.devices.superblock().clone();
        self.durable.journal.set_places(self.store.devices.rings_of(&now), None);
        self.store.devices.beside.borrow_mut().clear();
        self.store.note_only_journal();
        self.store.state.borrow_mut().release_metadata(&before, &now, relocation.from);
        self.extents.move_policy_state();
        self.extents.save_policy().await;
        Ok(())
    }

    /// Erases anything that could be taken for a structure of this volume. All pages of the map and of the
    /// spans are written later.
    async fn erase_places(&self, relocation: &Relocation) -> Result<()> {
        let member = self.store.member(relocation.to);
        let zeros = buffer(Arena::LARGEST).await;
        zeros.fill_zero();
        // On the same device, the erasure also finds unwritable places: such a place is the reason for the
        // move.
        let is_here = relocation.from == relocation.to;
        let is_erased =
            |region: &&Region| is_here || !matches!(region.kind, RegionKind::Map | RegionKind::Intents);
        let regions = relocation.new.iter().filter(is_erased).map(|region| (region.offset, region.len));
        let table = relocation.table.map(|table| (table.offset, table.len));
        for (offset, len) in regions.chain(table) {
            let mut at = Bytes::ZERO;
            while at < len {
                let step = zeros.len().min(len - at);
                self.durable
                    .device_write(member, offset + at, &zeros.slice(Bytes::ZERO..step), Origin::Background)
                    .await?;
                at += step;
            }
        }
        self.durable.flush_member(member, "the new place of metadata").await
    }
}

impl Journal {
    /// Writes the new places, too, from the next batch on, and makes the next checkpoint write all pages.
    async fn write_beside<D: Device>(&self, store: &Store<D>, relocation: &Relocation, planned: &Superblock) {
        let _no_batch = self.hold().await;
        let now = store.devices.rings_of(&store.devices.superblock());
        let joins = store.devices.rings_of(planned).into_iter().find(|ring| !now.contains(ring));
        self.set_places(now, joins);
        store.devices.beside.replace(relocation.new.clone());
        let mut state = store.state.borrow_mut();
        if store.shape.copies == 1 {
            state.set_only_journal(Some(NO_DEVICE));
        }
        state.mark_all_stale(planned.spans());
        if relocation.new.iter().any(|region| region.kind == RegionKind::CacheTable) {
            state.tables.mark_all_stale();
        }
    }
}

impl<D: Device> Devices<D> {
    /// True if metadata of the whole volume must leave a device before its removal. A cache table leaves with
    /// its device.
    pub fn holds_metadata(&self, device: DeviceId) -> bool {
        let superblock = self.superblock();
        if superblock.adopted().is_some() {
            return false;
        }
        let has_table = superblock.tables.iter().any(|table| table.device == device);
        has_table || !self.copies_on(device).is_empty()
    }

    /// Numbers of the copies with regions on a device.
    fn copies_on(&self, device: DeviceId) -> Vec<u8> {
        let of_copy = |copy: &u8| !self.regions_of(device, *copy).is_empty();
        (0..2).filter(of_copy).collect()
    }
}

impl<D: Device> Store<D> {
    /// Takes the slots of the new places. A void region is reproduced there, unless a valid region of the
    /// same kind moves.
    fn begin_relocation(&self, from: DeviceId, copy: u8) -> Result<Relocation> {
        let mut all = self.devices.regions_of(from, copy);
        all.sort_by_key(|region| region.void);
        let mut old: Vec<Region> = Vec::new();
        let is_new = |old: &[Region], region: &Region| old.iter().all(|known| known.kind != region.kind);
        all.iter().for_each(|region| old.extend(is_new(&old, region).then_some(*region)));
        let mut least = 0;
        for to in self.devices_for_metadata(from, copy) {
            let table = self.devices.table_for(from, to);
            let count = self.shape.slots_for(&old, table);
            least = count;
            let Some(first) = self.state.borrow_mut().reserve_run(to, count, self.shape.extents()) else {
                continue;
            };
            let mut offset = self.member(to).slot_offset(first, self.shape.extent_size);
            let new = old.iter().map(|region| {
                let placed = Region { device: to, offset, void: false, ..*region };
                offset += region.len;
                placed
            });
            let new: Vec<Region> = new.collect();
            let table = table.map(|len| TablePlace { device: to, offset, len });
            return Ok(Relocation { from, to, old: all, new, table, slots: (first, count) });
        }
        let text = format!(
            "device {from} holds metadata of the whole volume, and no other suitable device has {least} \
             free extents side by side: add a device first"
        );
        Err(Error::new(ErrorKind::NoSpace, text))
    }

    /// Possible devices for metadata, the best first. The device of the other copy is excluded; with one
    /// required copy, the device comes last.
    fn devices_for_metadata(&self, from: DeviceId, copy: u8) -> Vec<DeviceId> {
        let beside = self.devices.superblock().region(RegionKind::Map, 1 - copy).map(|r| r.device);
        let class = self.member(from).entry.class;
        let fits = |id: &DeviceId| {
            *id != from && self.member(*id).is_filled() && (self.shape.copies == 1 || Some(*id) != beside)
        };
        let mut all: Vec<DeviceId> = self.devices.iter().map(|member| member.id).filter(fits).collect();
        let views = &self.state.borrow().views;
        all.sort_by_key(|&id| {
            (Some(id) == beside, self.member(id).entry.class != class, Reverse(views[id.index()].free))
        });
        all
    }
}
