//! Adds a device to an open volume.
//!
//! 1. The superblocks of all devices name one more device, in state *removed*.
//! 2. The new device gets empty regions and a superblock. From now on, every opening knows the device.
//! 3. The caller notes the path.
//! 4. The superblocks of all devices say *active*. Once the change is durable, the slots are given out.

use crate::adopted::remove_metadata;
use crate::core::Upkeep;
use crate::create::{added_regions, refuse_content, room_for_slots, write_empty_regions};
use crate::devices::{Devices, Member, write_new};
use crate::{Error, ErrorKind, Result, Volume};
use braid_base::{Bytes, DeviceClass, DeviceId, KIB};
use braid_format::layout::{MOST_DEVICES, SMALLEST_DEVICE};
use braid_format::superblock::{DeviceEntry, DeviceState, Features, Layout, RegionKind, Role, Superblock};
use braid_format::{Fingerprint, Uuid};
use braid_policy::DeviceView;
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

/// A device that joins a volume.
#[derive(Clone, Debug)]
pub struct Addition {
    /// Name of the device in messages: its path.
    pub name: String,
    /// Identity of the device: 128 random bits.
    pub identity: Uuid,
    /// Emulated model; empty for none.
    pub model: String,
    /// Place of Braid's structures on the device.
    pub layout: Layout,
    /// True if other contents of the device may be overwritten.
    pub overwrite: bool,
}

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Adds a device to the volume while guests work, and returns its place. From the reply on, the policy
    /// uses the device. `record` is called after the other devices know the new device, and before data lies
    /// there: every later opening must name the device, too. If `record` fails, the device is not used.
    ///
    /// An interruption leaves a volume that opens: with the new device, or without the device and with an
    /// empty place. A new device that fails meanwhile does not join the volume.
    ///
    /// # Errors
    /// `Invalid` for a device that is too small, has contents, or exceeds the limit of devices, and if the
    /// policy cannot use the device; errors of `record`; errors of devices.
    pub async fn add_device(
        &self,
        device: D,
        addition: &Addition,
        record: impl FnOnce(DeviceId) -> Result<()>,
    ) -> Result<DeviceId> {
        let core = &self.core;
        core.jobs.begin();
        let added = self.add(Rc::new(device), addition, record).await;
        core.jobs.end();
        added
    }

    async fn add(
        &self,
        device: Rc<D>,
        addition: &Addition,
        record: impl FnOnce(DeviceId) -> Result<()>,
    ) -> Result<DeviceId> {
        let core = &self.core;
        let _alone = core.store.devices.life.acquire(1).await;
        core.upkeep.refuse_closing()?;
        let planned = core.store.devices.plan_addition(&*device, addition)?;
        let id = DeviceId((planned.devices.len() - 1) as u16);
        let entry = planned.devices[id.index()].clone();
        core.upkeep.check_policy_with(&planned, id)?;
        if !addition.overwrite {
            refuse_content(&*device, &addition.name).await?;
        }
        core.store.devices.drains.begin_membership_change(id, DeviceState::Removed);
        let joined = self.join(device, entry, &planned, record).await;
        core.store.devices.drains.end_membership_change(id);
        joined?;
        let (added, volume) = (&addition.name, &planned.name);
        tracing::info!(code = "device-added", device = %id, "{added} is now device {id} of volume '{volume}'");
        Ok(id)
    }

    async fn join(
        &self,
        device: Rc<D>,
        entry: DeviceEntry,
        planned: &Superblock,
        record: impl FnOnce(DeviceId) -> Result<()>,
    ) -> Result<()> {
        let (core, id) = (&self.core, DeviceId((planned.devices.len() - 1) as u16));
        let known = {
            let mut superblock = core.store.devices.superblock.borrow_mut();
            superblock.features.incompat |= Features::REMOVED_DEVICES;
            superblock.devices.push(entry.clone());
            superblock.clone()
        };
        core.store.devices.push(Member::new(id, entry, Some(device.clone()), false));
        core.upkeep.set_device(&known, id)?;
        core.durable.change_superblock(|_| ()).await?;
        let mut alone: Vec<Option<&D>> = vec![None; id.index()];
        alone.push(Some(&*device));
        write_empty_regions(&alone, planned, None).await?;
        let known = core.store.devices.superblock().clone();
        write_new(&[&alone], &known).await?;
        record(id)?;
        self.activate(id, planned).await
    }

    /// Records the new device as active. Once all superblocks say so, the device gets data.
    async fn activate(&self, id: DeviceId, planned: &Superblock) -> Result<()> {
        let core = &self.core;
        let had_cache = core.store.devices.has_cache_table();
        core.store.member(id).set_state(DeviceState::Active);
        let regions = planned.regions.iter().filter(|region| region.device == id).copied();
        core.durable
            .change_superblock(|superblock| {
                if !core.store.devices.is_joining(id) {
                    // The device failed while another change was being written.
                    return;
                }
                superblock.regions.extend(regions);
                if superblock.regions.iter().any(|region| region.kind == RegionKind::CacheTable) {
                    superblock.features.incompat |= Features::CLEAN_EXTRAS;
                }
            })
            .await?;
        // If the device has failed meanwhile, the superblocks must say so before anyone removes it.
        core.durable.record_states().await?;
        let member = core.store.member(id);
        if member.state() == DeviceState::Removed {
            let error = member.stats.borrow().last_error.clone().unwrap_or_default();
            let text = format!(
                "{} failed during its addition, and is not a device of the volume: add a working device \
                 ({error})",
                core.store.member(id).describe()
            );
            return Err(Error::new(ErrorKind::Io, text));
        }
        let known = core.store.devices.superblock().clone();
        core.upkeep.set_device(&known, id)?;
        core.durable.start_leases();
        if !had_cache && core.store.devices.has_cache_table() {
            core.upkeep.start_cache_jobs();
        }
        Ok(())
    }
}

impl<D: Device> Devices<D> {
    /// Superblock with the new device in state *removed*, and with its regions.
    pub(super) fn plan_addition(&self, device: &D, addition: &Addition) -> Result<Superblock> {
        let Addition { name, identity, model, layout, .. } = addition;
        let (geometry, mut planned) = (device.geometry(), self.superblock().clone());
        let place = planned.devices.len();
        let least = SMALLEST_DEVICE.max(planned.extent_size * 4);
        if geometry.size < least {
            return invalid(format!("{name} has {}: use a device of at least {least}", geometry.size));
        }
        if geometry.alignment > KIB * 4 {
            return invalid(format!(
                "{name} needs requests of {}: at most 4 KiB is supported",
                geometry.alignment
            ));
        }
        if planned.adopted().is_some() && geometry.class != DeviceClass::Ssd {
            return invalid(format!("{name} is not an SSD: only SSDs can cache an adopted disk"));
        }
        if place >= MOST_DEVICES {
            return invalid(format!("volume '{}' has {place} places for devices, the limit", planned.name));
        }
        if !self.has_place() {
            let text = format!(
                "volume '{}' takes no more new devices until it is served again: stop and serve it",
                planned.name
            );
            return invalid(text);
        }
        let (slots_offset, slots) =
            room_for_slots(place, geometry.size, *layout, Bytes::ZERO, planned.extent_size)?;
        let first_slot = planned.devices.last().map_or(1, |last| last.first_slot + last.slots);
        let slots = slots.min(u64::from(u32::MAX / 2)) as u32;
        if u64::from(first_slot) + u64::from(slots) >= u64::from(u32::MAX) {
            return invalid(format!(
                "{name} has {slots} extents of {}: with the {} numbered extents of the volume this exceeds \
                 2^32",
                planned.extent_size, first_slot
            ));
        }
        let entry = DeviceEntry {
            uuid: *identity,
            size: geometry.size,
            class: geometry.class,
            model: model.clone(),
            slots,
            first_slot,
            slots_offset,
            state: DeviceState::Removed,
            role: Role::DATA,
            layout: *layout,
            in_step: planned.epoch,
            fingerprint: Fingerprint::default(),
        };
        let regions = added_regions(&planned, DeviceId(place as u16), &entry)?;
        planned.devices.push(entry);
        planned.regions.extend(regions);
        planned.verify().map_err(|wrong| {
            let text = format!("{name} cannot become a device of volume '{}': {wrong}", planned.name);
            Error::new(ErrorKind::Invalid, text)
        })?;
        Ok(planned)
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Checks that the policy can be made for the devices, without the new device and with it.
    fn check_policy_with(&self, planned: &Superblock, id: DeviceId) -> Result<()> {
        let entry = &planned.devices[id.index()];
        let mut views = self.store.state.borrow().views.clone();
        for slots in [0, entry.slots] {
            views.truncate(id.index());
            views.push(DeviceView::empty(id, entry.class, slots));
            self.policy_for(&views, false)?;
        }
        Ok(())
    }

    /// Fails if no change of devices can begin any more.
    pub(super) fn refuse_closing(&self) -> Result<()> {
        match self.durable.journal.failure() {
            Some(error) => Err(error),
            None if self.jobs.are_ending() => invalid("the volume is being closed".to_owned()),
            None => Ok(()),
        }
    }
}

impl<D: Device> Devices<D> {
    /// Marks a device that failed while joining as removed. The volume lacks nothing without the device.
    pub fn turn_away(&self, device: DeviceId) {
        self[device].set_state(DeviceState::Removed);
        self.note_change();
        remove_metadata(&mut self.superblock.borrow_mut(), device);
    }
}

pub(super) fn invalid<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, message))
}
