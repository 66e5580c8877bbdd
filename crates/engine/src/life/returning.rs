//! A failed or missing device returns while the volume is open.
//!
//! The differences are known. Since the device left, the journal has recorded every span with a missed write,
//! and every span not flushed at that time. The device is therefore judged as at an opening, is written from
//! now on, and the resync copies the differences. A device that is an older copy of itself than the records
//! reach back lacks everything. When nothing is behind any more, a checkpoint follows, and then the device is
//! active ([`Durable::welcome_returned`]). The checkpoint renews the device's map image, journal and cache
//! table, which are as old as its data.

use super::add::invalid;
use crate::core::{Store, Upkeep};
use crate::devices::Devices;
use crate::open::{Candidate, judge};
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result, Volume};
use braid_base::DeviceId;
use braid_format::SpanId;
use braid_format::superblock::{DeviceState, Header};
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Closes a failed device, to be opened again or taken away. The state stays failed.
    ///
    /// # Errors
    /// `Invalid` if the device is in use, or still owes answers.
    pub async fn release_device(&self, device: DeviceId) -> Result<()> {
        let _alone = self.core.store.devices.life.acquire(1).await;
        self.core.store.devices.refuse_use(device)?;
        self.core.store.member(device).release();
        Ok(())
    }

    /// Uses a device again that failed, was taken out of use, or was missing at the opening; returns its
    /// number. From the reply on, the device is resynchronised beside the guests. `name` is for messages: the
    /// path.
    ///
    /// # Errors
    /// `Invalid` for a device that is foreign, is in use, has shrunk or still owes answers; `Degraded` if the
    /// device was used apart from the rest; `Unsupported` with one required copy, and while epochs are kept;
    /// errors of devices. Nothing has changed then.
    pub async fn return_device(&self, device: D, name: &str) -> Result<DeviceId> {
        self.return_device_noted(device, name, |_| Ok(())).await
    }

    /// As [`Volume::return_device`]. `record` is called once nothing refuses the device any more, and before
    /// the device is written: the caller notes the path. If `record` fails, the device is not used.
    ///
    /// # Errors
    /// As [`Volume::return_device`], and errors of `record`.
    pub async fn return_device_noted(
        &self,
        device: D,
        name: &str,
        record: impl FnOnce(DeviceId) -> Result<()>,
    ) -> Result<DeviceId> {
        let core = &self.core;
        let _alone = core.store.devices.life.acquire(1).await;
        core.upkeep.refuse_closing()?;
        let device = Rc::new(device);
        let mut candidate = Candidate::read(&core.rt, device.clone(), name).await?;
        let id = candidate.header.this_device;
        core.upkeep.refuse_return(&candidate.header, name)?;
        let member = core.store.member(id);
        if device.geometry().alignment > member.alignment {
            return invalid(format!(
                "{name} needs requests of {}, and was used with {}: stop the volume and serve it again",
                device.geometry().alignment,
                member.alignment
            ));
        }
        core.durable.record_states().await?;
        let known = core.store.devices.superblock().clone();
        // The device's own superblock names the place of its own table: the table may have moved since.
        let places = [&known.tables[..], &candidate.header.tables].concat();
        candidate.read_tables(&core.rt, &places).await;
        let lacks_all = judge(&known, &candidate)?.lacks_all;
        let newest = candidate.numbers().max().filter(|&its| its > (known.epoch, known.sequence));
        if let Some((its, _)) = newest {
            // Until its superblock has been written, the device would have the newest.
            let own = known.epoch;
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{name} was about to be opened without the other devices (opening {its}, this is \
                     {own}): stop the volume, and serve it with all devices"
                ),
            ));
        }
        if lacks_all {
            core.upkeep.put_copies_behind(id).await?;
        }
        core.upkeep.refuse_return(&candidate.header, name)?;
        member.renew(device, lacks_all);
        let readied = core.extents.void_returned(id).await.and_then(|()| record(id));
        if let Err(error) = readied {
            // A device that owes an answer stays in its place as failed, and may be used again after the
            // answer.
            if member.requests.is_idle() {
                member.release();
            }
            return Err(error);
        }
        core.store.devices.drains.set_lost(id, false);
        let early = planted(Bug::ReturnedTakenForCurrent);
        member.set_state(if early { DeviceState::Active } else { DeviceState::Returning });
        core.store.devices.note_change();
        core.store.mark_metadata_stale(id);
        core.durable.change_superblock(|_| ()).await?;
        core.durable.start_leases();
        let described = core.store.member(id).describe();
        tracing::info!(code = "device-returning", device = %id, "{name} is back as {described}: its resync begins");
        core.jobs.wake();
        Ok(id)
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Refuses a device that cannot be used again now, whatever its contents.
    fn refuse_return(&self, header: &Header, name: &str) -> Result<()> {
        let (known, id) = (self.store.devices.superblock().volume, header.this_device);
        if header.volume != known {
            return invalid(format!(
                "{name} belongs to another volume, '{}' ({}): name a device of this volume ({known})",
                header.name, header.volume
            ));
        }
        self.store.devices.refuse_use(id)?;
        let unsupported = |text: &str| Err(Error::new(ErrorKind::Unsupported, text));
        if self.store.shape.copies == 1 {
            return unsupported(
                "the volume has one copy of everything, so an excluded device cannot be brought up to date: \
                 remove the device (braid device remove)",
            );
        }
        if self.extents.active_epochs().is_some() {
            return unsupported(
                "while epochs are kept, a device returns only at the opening of the volume: stop the volume \
                 and serve it again",
            );
        }
        Ok(())
    }

    /// Records all extents as behind that have a copy on a device without current data, or get such a copy
    /// back in a crash. Both copies of other extents stay current: guests need the second copy if a sector of
    /// the first is bad.
    async fn put_copies_behind(&self, device: DeviceId) -> Result<()> {
        {
            let mut state = self.store.state.borrow_mut();
            let extents = state.extents_on(device);
            extents.into_iter().for_each(|extent| state.behind.doubt_extent(extent));
        }
        let spans = self.store.devices.superblock().spans();
        for span in 0..spans {
            self.durable.record_behind(SpanId(span)).await?;
        }
        Ok(())
    }
}

impl<D: Device> Devices<D> {
    /// Refuses a device that is not failed or missing, or that still owes answers: an old request could
    /// overwrite resynchronised data.
    fn refuse_use(&self, device: DeviceId) -> Result<()> {
        let member = self.device_named(device)?;
        match member.state() {
            DeviceState::Missing | DeviceState::Failed => {}
            DeviceState::Removed => {
                return invalid(format!("device {device} was removed: add it (braid device add)"));
            }
            state => {
                return invalid(format!(
                    "device {device} is {state}: only a failed or missing device can return"
                ));
            }
        }
        if member.requests.is_idle() {
            return Ok(());
        }
        invalid(format!(
            "{} has not answered {} earlier request(s), and may still carry them out: wait for the answers, \
             or detach the device and attach it again",
            self[device].describe(),
            member.requests.late()
        ))
    }
}

impl<D: Device> Store<D> {
    /// Makes the next checkpoint write all of the map and the table of spans, and voids the cache table of a
    /// device.
    fn mark_metadata_stale(&self, device: DeviceId) {
        let mut state = self.state.borrow_mut();
        state.mark_all_stale(self.devices.superblock().spans());
        state.tables.forget(device);
    }
}
