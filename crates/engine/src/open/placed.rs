//! Devices in the places that the newest superblock gives them.

use super::candidate::Candidate;
use super::cut::{self, End, is_short, refuse_cut};
use super::verdict::{
    absent, entry_of, is_given_up, is_leaving, is_removed, judge, judge_adopted, refuse, was_current,
};
use super::{Attempts, Lacking};
use crate::{ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::Uuid;
use braid_format::superblock::{DeviceState, Superblock};
use braid_runtime::Device;
use std::rc::Rc;

/// Devices in their places, each judged by itself. The fields are as in [`super::Assembled`].
pub(super) struct PlacedDevices<D> {
    pub devices: Vec<Option<Rc<D>>>,
    /// States of the devices from now on, by id.
    pub states: Vec<DeviceState>,
    pub anew: Vec<DeviceId>,
    pub cut: Vec<(DeviceId, String)>,
}

impl<D: Device> PlacedDevices<D> {
    /// Creates the places of a volume without any device.
    pub fn none(superblock: &Superblock, distrusted: &[DeviceId]) -> PlacedDevices<D> {
        let states: Vec<DeviceState> = superblock.devices.iter().map(absent).collect();
        let devices = states.iter().map(|_| None).collect();
        PlacedDevices { devices, states, anew: distrusted.to_vec(), cut: Vec::new() }
    }

    /// Judges a device and puts the device into its place, or leaves the device out.
    ///
    /// # Errors
    /// The refusals of [`judge`]; a device that was cut, if no other copy exists.
    pub fn place(
        &mut self,
        superblock: &Superblock,
        candidate: Candidate<'_, D>,
        distrusted: &[DeviceId],
        lacking: Lacking,
        attempts: &Attempts,
    ) -> Result<()> {
        let Candidate { ref device, name, ref header, end, .. } = candidate;
        let (device, id) = (device.clone(), header.this_device);
        let describe = |end| cut::describe(name, header, end);
        let warn = |what| tracing::warn!("{name} (device {id} of volume '{}') {what}", superblock.name);
        if superblock.devices.get(id.index()).is_some_and(|entry| is_removed(entry, header)) {
            warn("is left out: it was removed");
            self.devices[id.index()] = Some(device);
            return Ok(());
        }
        if superblock.devices.get(id.index()).is_some_and(|entry| is_leaving(entry, header)) {
            warn("stays out of use: its removal is pending");
            self.devices[id.index()] = Some(device);
            self.states[id.index()] = DeviceState::Failed;
            return Ok(());
        }
        let was_lost = superblock.devices.get(id.index()).is_some_and(|entry| !was_current(entry));
        if superblock.copies == 1 && (was_lost || is_given_up(superblock, id, distrusted)) {
            // No other copy can bring the device up to date.
            warn("is left out: it was excluded");
            return Ok(());
        }
        let entry = entry_of(superblock, &candidate)?;
        let may_be_left_out = was_lost || distrusted.contains(&id) || lacking == Lacking::Examined;
        if is_short(entry, &candidate) && may_be_left_out {
            tracing::warn!("{} (volume '{}'): it is left out", describe(End::Short), superblock.name);
            self.cut.push((id, describe(End::Short)));
            return Ok(());
        }
        if !distrusted.contains(&id) {
            let judged = judge(superblock, &candidate)?;
            self.states[id.index()] = judged.state;
            self.anew.extend(judged.lacks_all.then_some(id));
            if judged.is_cut || attempts.cut.contains(&id) {
                if superblock.copies == 1 && lacking == Lacking::Refused {
                    return refuse_cut(superblock, name, id);
                }
                tracing::error!("{} (volume '{}')", describe(end), superblock.name);
                self.cut.push((id, describe(end)));
            }
            if let Some(found) = attempts.forgetful.iter().find(|found| found.device == id) {
                let what = found.describe(name, &superblock.name);
                tracing::warn!("{what}; the data of this device is copied again from the others");
                self.states[id.index()] = DeviceState::Returning;
                self.anew.push(id);
                self.cut.push((id, what));
            }
        } else {
            self.states[id.index()] = DeviceState::Returning;
        }
        self.devices[id.index()] = Some(device);
        Ok(())
    }

    /// Puts the adopted disk into its place.
    ///
    /// # Errors
    /// Refuses another disk, a missing disk, and a disk of a volume that has adopted none.
    pub fn place_adopted(
        &mut self,
        superblock: &Superblock,
        disk: Option<(Rc<D>, &str, Uuid)>,
        distrusted: &[DeviceId],
    ) -> Result<()> {
        match (superblock.adopted(), disk) {
            (None, None) => {}
            (Some(id), Some((device, name, identity))) => {
                judge_adopted(superblock, &superblock.devices[id.index()], name, &*device, identity)?;
                if distrusted.contains(&id) {
                    let text = format!(
                        "{name} is the disk that volume '{}' adopted: it is the volume",
                        superblock.name
                    );
                    return refuse(ErrorKind::Invalid, format!("{text}, and cannot be excluded"));
                }
                self.states[id.index()] = superblock.devices[id.index()].state;
                self.devices[id.index()] = Some(device);
            }
            (Some(id), None) => {
                let entry = &superblock.devices[id.index()];
                let text = format!(
                    "volume '{}' lacks {id}, the disk of {} that it adopted: bring it back (nothing was changed)",
                    superblock.name, entry.size
                );
                return refuse(ErrorKind::Degraded, text);
            }
            (None, Some((_, name, _))) => {
                let text = format!(
                    "{name} is given as an adopted disk, and volume '{}' has no adopted disk",
                    superblock.name
                );
                return refuse(ErrorKind::Invalid, text);
            }
        }
        Ok(())
    }
}
