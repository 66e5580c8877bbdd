//! Removes a device from an open volume: the device drains, and leaves the volume once empty.

use super::add::{Addition, invalid};
use crate::adopted::remove_metadata;
use crate::buffer::buffer;
use crate::core::Upkeep;
use crate::create::room;
use crate::devices::{Deadline, Devices, Member};
use crate::map::Space;
use crate::{Error, ErrorKind, Result, Volume};
use braid_base::{Bytes, DeviceId};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{DeviceState, Features, SIZE, Superblock};
use braid_policy::DeviceView;
use braid_runtime::{Device, Runtime};

/// Spare slots that compensate rounding. Moved metadata, and the cache table of an added device, take whole
/// slots, unlike at a creation. Replacement by a device of the same size must still succeed.
const ROUNDED: u32 = 2;

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Begins to drain a device: from the reply on, the device gets nothing new, and its contents move to the
    /// other devices beside the guests. Once empty, the device is removed, and [`Volume::removed_devices`]
    /// names it. The drain continues after a crash. Data of a lost device is copied from the other required
    /// copies.
    /// # Errors
    /// `Invalid` if the device does not exist, is returning, removed or adopted, keeps epochs, or leaves
    /// fewer devices than copies; `NoSpace` if the other devices lack room for the whole volume with all its
    /// copies and its metadata. Nothing has changed then.
    pub async fn remove_device(&self, device: DeviceId) -> Result<()> {
        let core = &self.core;
        let _alone = core.store.devices.life.acquire(1).await;
        core.upkeep.refuse_closing()?;
        let member = core.store.devices.device_named(device)?;
        if member.state() == DeviceState::Draining {
            return Ok(());
        }
        let is_lost = core.store.devices.refuse_staying(device)?;
        core.upkeep.refuse_without_room(device, None)?;
        core.store.devices.drains.begin(device);
        if is_lost {
            core.store.devices.drains.set_lost(device, true);
        } else {
            core.store.state.borrow_mut().set_open(device, false);
            member.set_state(DeviceState::Draining);
        }
        core.durable.change_superblock(|_| ()).await?;
        tracing::info!("{} is removed as soon as it is empty", core.store.member(device).describe());
        core.jobs.wake();
        Ok(())
    }

    /// Checks that a device can be removed after the new device has been added. Nothing changes.
    ///
    /// # Errors
    /// As [`Volume::add_device`] and [`Volume::remove_device`], except for contents of the new device.
    pub fn check_replacement(&self, device: DeviceId, new: &D, addition: &Addition) -> Result<()> {
        let core = &self.core;
        core.upkeep.refuse_closing()?;
        core.store.devices.refuse_staying(device)?;
        let mut planned = core.store.devices.plan_addition(new, addition)?;
        let last = planned.devices.last_mut().expect("the new device is planned");
        last.state = DeviceState::Active;
        core.upkeep.refuse_without_room(device, Some(&planned))
    }

    /// Cancels a drain: the device is used as before. Moved data stays in its new place until the policy
    /// moves it.
    ///
    /// # Errors
    /// `Invalid` if the device is not draining.
    pub async fn cancel_removal(&self, device: DeviceId) -> Result<()> {
        let core = &self.core;
        let _alone = core.store.devices.life.acquire(1).await;
        core.upkeep.refuse_closing()?;
        let member = core.store.devices.device_named(device)?;
        if core.store.devices.drains.set_lost(device, false) {
            return core.durable.change_superblock(|_| ()).await;
        }
        if member.state() != DeviceState::Draining {
            return invalid(format!("device {device} is {}: nothing to cancel", member.state()));
        }
        member.set_state(DeviceState::Active);
        core.durable.change_superblock(|_| ()).await?;
        core.store.state.borrow_mut().set_open(device, true);
        core.jobs.wake();
        Ok(())
    }

    /// Removed devices that have not been erased since the opening.
    pub fn removed_devices(&self) -> Vec<DeviceId> {
        let drains = &self.core.store.devices.drains;
        let removed = self.core.store.devices.iter().filter(|m| m.state() == DeviceState::Removed);
        let is_left = |&device: &DeviceId| !drains.is_erased(device) && !drains.is_changing(device);
        removed.map(|member| member.id).filter(is_left).collect()
    }

    /// Erases the superblocks of a removed device, which then belongs to no volume. Later openings must not
    /// name the device.
    ///
    /// # Errors
    /// `Invalid` if the device was not removed; errors of the device. The call may be repeated then.
    pub async fn erase_removed(&self, device: DeviceId) -> Result<()> {
        let core = &self.core;
        let member = core.store.devices.device_named(device)?;
        if member.state() != DeviceState::Removed || core.store.devices.drains.is_changing(device) {
            return invalid(format!("device {device} is {}: it was not removed", member.state()));
        }
        core.upkeep.erase_superblocks(member).await.map_err(|error| {
            Error::io(format_args!("the superblock of removed device {device} could not be erased"), &error)
        })?;
        core.store.devices.drains.set_erased(device);
        Ok(())
    }
}

impl<D: Device> Devices<D> {
    pub(super) fn device_named(&self, device: DeviceId) -> Result<&Member<D>> {
        let count = self.iter().count();
        match self.iter().find(|member| member.id == device) {
            Some(member) => Ok(member),
            None => invalid(format!("the volume has no device {device}: it has {count}")),
        }
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Removes a drained, empty device from the volume.
    pub(super) async fn end_removal(&self, device: DeviceId) -> Result<()> {
        let _alone = self.store.devices.life.acquire(1).await;
        let member = self.store.member(device);
        let is_empty = self.store.is_drained(device);
        if !self.store.devices.is_leaving(device) || !is_empty || self.refuse_closing().is_err() {
            return Ok(());
        }
        self.check_policy_without(device)?;
        // If the change cannot be made durable, the device keeps its superblock: an opening may need it.
        self.store.devices.drains.begin_membership_change(device, member.state());
        let journal = self
            .durable
            .move_journal_off(device)
            .await
            .inspect_err(|_| self.store.devices.drains.end_membership_change(device))?;
        member.set_state(DeviceState::Removed);
        let known = {
            let mut superblock = self.store.devices.superblock.borrow_mut();
            superblock.features.incompat |= Features::REMOVED_DEVICES;
            remove_metadata(&mut superblock, device);
            superblock.devices[device.index()].state = DeviceState::Removed;
            superblock.clone()
        };
        // The journal has moved already, and no superblock says so yet.
        self.set_device(&known, device).inspect_err(|error| self.durable.fail(error.clone()))?;
        let changed = self.durable.change_superblock(|_| ()).await;
        if let (Some(_), Err(error)) = (&journal, &changed) {
            // The superblocks may name the abandoned journal.
            self.durable.fail(error.clone());
        }
        drop(journal);
        changed?;
        self.store.devices.drains.end_membership_change(device);
        let volume = &known.name;
        tracing::info!(code = "device-removed", %device, "device {device} of volume '{volume}' is empty, and removed");
        Ok(())
    }

    /// Checks that the policy can be made for the remaining devices.
    fn check_policy_without(&self, device: DeviceId) -> Result<()> {
        let mut views = self.store.state.borrow().views.clone();
        let view = &mut views[device.index()];
        (view.slots, view.free) = (0, 0);
        self.policy_for(&views, !self.store.member(device).is_written()).map(drop)
    }

    /// Refuses if the other devices lack room for the whole volume, written or not: a later guest write would
    /// fail. With `planned`, its last device counts, too.
    fn refuse_without_room(&self, device: DeviceId, planned: Option<&Superblock>) -> Result<()> {
        let (copies, size) = (self.store.shape.copies, self.store.shape.volume_size);
        if self.store.devices.superblock().adopted().is_some() {
            // All of the volume lies on the disk, and its metadata in the record, too.
            self.store.devices.refuse_without_record(device)?;
            return self.check_policy_without(device);
        }
        let new = planned.map(|planned| DeviceId((planned.devices.len() - 1) as u16));
        let is_left = |id: DeviceId| id != device && (Some(id) == new || self.store.member(id).is_filled());
        let ids = self.store.devices.iter().map(|member| member.id).chain(new);
        let others = ids.filter(|&id| is_left(id)).count();
        if others < usize::from(copies) {
            return invalid(format!(
                "device {device} cannot be removed: {others} other device(s) are in use, and the volume has \
                 {copies} copies of everything; add a device first"
            ));
        }
        let metadata = match new {
            Some(new) => self.metadata_on_new(device, new)?,
            None => self.metadata_targets(device)?,
        };
        let gives = |id: DeviceId| match metadata
            .iter()
            .filter(|(to, _)| *to == id)
            .map(|(_, slots)| *slots)
            .sum::<u32>()
        {
            0 => 0,
            slots => slots.saturating_sub(ROUNDED),
        };
        let mut views = self.store.state.borrow().views.clone();
        if let (Some(new), Some(planned)) = (new, planned) {
            views.push(DeviceView::empty(
                new,
                planned.devices[new.index()].class,
                Space::new(planned).free(new),
            ));
        }
        // A lost device that stays still belongs to the policy's devices.
        (views[device.index()].slots, views[device.index()].free) = (0, 0);
        let policy = self.policy_for(&views, !self.store.member(device).is_written())?;
        for view in &mut views {
            let left = if is_left(view.id) { view.slots.saturating_sub(gives(view.id)) } else { 0 };
            (view.slots, view.free) = (left, left);
        }
        let entries = planned.unwrap_or(&*self.store.devices.superblock()).devices.clone();
        let (most, _) = room(&views, &entries, &*policy, self.store.shape.extent_size, copies);
        if size <= most {
            return Ok(());
        }
        let text = format!(
            "device {device} cannot be removed: without it the devices have room for {most}, and the volume has {size} with {copies} cop{} of \
             everything; {}",
            if copies == 1 { "y" } else { "ies" },
            if new.is_some() { "use a larger device" } else { "add a device first" }
        );
        Err(Error::new(ErrorKind::NoSpace, text))
    }

    async fn erase_superblocks(&self, member: &Member<D>) -> std::io::Result<()> {
        if !member.is_there() {
            return Ok(());
        }
        // A renewal of the lease may be in flight.
        let _alone = member.superblocks.acquire(1).await;
        let zeros = buffer(SIZE).await;
        zeros.fill_zero();
        let places: Vec<Bytes> = superblock_offsets(member.entry.size, member.entry.layout);
        for place in places {
            let written = member.write(place, &zeros, Deadline::Only).await;
            member.note_write();
            written?;
        }
        member.flush(&self.rt).await.map(drop)
    }
}

impl<D: Device> Devices<D> {
    /// Refuses the removal of a device in an unsuitable state. Returns true if the device is lost.
    fn refuse_staying(&self, device: DeviceId) -> Result<bool> {
        let is_lost = match self.device_named(device)?.state() {
            DeviceState::Active | DeviceState::Slow | DeviceState::Draining => false,
            DeviceState::Missing | DeviceState::Failed => true,
            state @ (DeviceState::Returning | DeviceState::Removed) => {
                return invalid(format!(
                    "device {device} is {state}: only a device in use or a lost device can be removed"
                ));
            }
        };
        if self.superblock().adopted() == Some(device) {
            let text = "device {device} is the disk that the volume adopted, and the volume needs it; remove the \
                        SSD, stop the volume, and braid forget the volume";
            return invalid(text.replace("{device}", &device.to_string()));
        }
        Ok(is_lost)
    }
}
