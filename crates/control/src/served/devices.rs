//! Changes of a served volume's devices: `braid device add`, `fail`, `replace` and `return`.

use crate::device::open::{OpenDevice, Prepared, prepare, refuse_duplicates};
use crate::device::protected::write_protection;
use crate::device::remote::remove_made;
use crate::device::spec::{DeviceSpec, Storage};
use crate::members::claims::{IntendedUse, refuse_adopted, refuse_claimed};
use crate::members::finding::find;
use crate::members::open::{Member, open_paths};
use crate::members::replaced::old_and_new;
use crate::model::library;
use crate::report::changes::{AddReport, ReplaceReport};
use crate::served::ServedVolume;
use crate::state::state_dir::{DeviceRecord, VolumeRecord};
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_engine::Addition;
use braid_format::Uuid;
use braid_format::superblock::Layout;
use braid_runtime::Device;
use std::path::PathBuf;
use std::time::Duration;

/// Time within which udev looks at a device that was closed.
const UDEV_COMES: Duration = Duration::from_millis(200);

impl ServedVolume {
    /// Adds a device to the volume. If adding fails, a file made for the device is removed again.
    pub async fn add_device(&self, spec: &DeviceSpec, overwrite: bool) -> Result<AddReport> {
        self.add(spec, overwrite, None).await.map(|(_, report)| report)
    }

    /// Adds a device as [`ServedVolume::add_device`]. If `leaves` names a device to be replaced, the new
    /// device is added only if that device can leave the volume.
    async fn add(
        &self,
        spec: &DeviceSpec,
        overwrite: bool,
        leaves: Option<DeviceId>,
    ) -> Result<(DeviceId, AddReport)> {
        // Of two additions of a new file at the same time, the one that fails would remove the other's.
        let _alone = self.adding.acquire(1).await;
        let record = self.record()?;
        if spec.storage == Storage::Memory && !record.temporary {
            let problem = "a device in memory ends with its daemon: use a path";
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        let model = spec.model.as_deref().map(|model| library::find(spec.class, model)).transpose()?;
        let stored = model.as_ref().map(|model| model.stored.clone());
        let mut new = DeviceRecord::new(&spec.storage, spec.class, stored.as_deref(), 0);
        let mut paths = self.open_paths(&record, None);
        paths.extend(new.path.clone());
        let (state, path) = (self.state.clone(), new.path.clone());
        self.aside(move || {
            refuse_duplicates(paths.iter().map(PathBuf::as_path))?;
            let intended = IntendedUse::Overwrite { forced: overwrite };
            path.map_or(Ok(()), |path| refuse_claimed(&state, &path, intended))
        })
        .await?;
        let own = model.as_ref().and_then(|model| model.own.clone());
        if let Some((name, text)) = &own {
            library::keep(&mut record.models.clone(), name.clone(), text.clone())?;
        }
        let preparing = spec.clone();
        new.made = self.aside(move || prepare(&preparing)).await? == Prepared::Made;
        let added = async {
            if let Storage::Path(path) = &spec.storage {
                self.wait_until_free(path.clone(), Duration::ZERO).await?;
            }
            let (model, seed) = (model.map(|model| model.spec), self.members.borrow().len() as u64);
            let opened =
                OpenDevice::open(&self.ring, &spec.storage, spec.class, model.as_ref(), spec.size, seed)
                    .await?;
            new.size_bytes = opened.geometry().size.0;
            let addition = Addition {
                name: spec.name(),
                identity: Uuid(uuid::Uuid::new_v4().into_bytes()),
                model: stored.unwrap_or_default(),
                layout: spec.layout.unwrap_or(Layout::Head),
                overwrite,
            };
            if let Some(device) = leaves {
                self.volume().check_replacement(device, &opened, &addition)?;
            }
            let note = |id: DeviceId| {
                // Change the record as it is now: another device may have been removed meanwhile.
                let noted = self.state.change(&self.name, |record| {
                    if let Some((name, text)) = own {
                        library::keep(&mut record.models, name, text)?;
                    }
                    record.set_device(id.index(), new.clone());
                    Ok(())
                });
                noted
                    .map(drop)
                    .map_err(|error| braid_engine::Error::new(braid_engine::ErrorKind::Io, error.to_string()))
            };
            let id = self.volume().add_device(opened.clone(), &addition, note).await?;
            self.members.borrow_mut().push(Member {
                id,
                device: Some(opened),
                name: spec.name(),
                adopted: None,
            });
            Ok(id)
        };
        let added: Result<DeviceId> = added.await;
        let id = match added {
            Ok(id) => id,
            Err(error) => {
                let known = self.record_or(&new);
                self.aside(move || {
                    remove_unused(&known, &new);
                    Ok(())
                })
                .await?;
                return Err(error);
            }
        };
        let devices = self.record()?.devices;
        let (name, left_bytes) = (self.name.to_string(), self.left_bytes());
        Ok((id, AddReport { name, device: id.to_string(), devices, left_bytes }))
    }

    /// Adds a device, and drains the device to be replaced. If the old device cannot leave, the new device is
    /// not added. If the removal is refused after the addition, the new device is removed again.
    pub async fn replace_device(
        &self,
        device: DeviceId,
        text: &str,
        overwrite: bool,
    ) -> Result<ReplaceReport> {
        let (old, mut spec) = old_and_new(&self.record()?, device, text)?;
        let replaced_path = self.name_of(device).unwrap_or_else(|| old.name());
        let status = self.volume().status();
        if status.devices.iter().any(|status| status.id == device && status.keeps_addresses) {
            spec.layout = Some(Layout::Tail);
        }
        let (added, AddReport { name, device: new_device, devices, .. }) =
            self.add(&spec, overwrite, Some(device)).await?;
        if let Err(error) = self.volume().remove_device(device).await {
            if let Err(stays) = self.volume().remove_device(added).await {
                tracing::warn!("{new_device} of volume '{name}' was added, and stays: {stays}");
            }
            return Err(error.into());
        }
        Ok(ReplaceReport { name, device: device.to_string(), new_device, replaced_path, devices })
    }

    /// Returns the present path of a device, whatever path the record names.
    async fn find_device(&self, record: &VolumeRecord, device: DeviceId) -> Option<PathBuf> {
        let (state, record) = (self.state.clone(), record.clone());
        let found = self.aside(move || find(&state, &record)).await;
        let found = found.inspect_err(|error| tracing::warn!("no search for {device}: {error}")).ok()?;
        found.places.iter().find(|place| place.id == device)?.path().cloned()
    }

    /// Paths of the open devices except `but`. The recorded path of a missing device is left out: it may lead
    /// to any other device now.
    fn open_paths(&self, record: &VolumeRecord, but: Option<DeviceId>) -> Vec<PathBuf> {
        let members = self.members.borrow();
        let open = members.iter().filter(|member| member.device.is_some() && Some(member.id) != but);
        open.filter_map(|member| record.devices.get(member.id.index())?.path.clone()).collect()
    }

    /// Uses a device again that failed or was missing: at `path`, or at the place where the device is found.
    pub async fn return_device(&self, device: DeviceId, path: Option<PathBuf>) -> Result<AddReport> {
        let record = self.record()?;
        let usage = |problem: String| Error::new(ErrorKind::Usage, problem);
        let Some(noted) = record.devices.get(device.index()).filter(|noted| !noted.removed) else {
            return Err(usage(format!("volume '{}' has no device {device}", self.name)));
        };
        let path = match path {
            Some(path) => Some(path),
            None => self.find_device(&record, device).await.or_else(|| noted.path.clone()),
        };
        let Some(path) = path else {
            let problem = match noted.missing {
                true => format!("the path of {device} is unknown: name the path"),
                false => format!("{device} is memory: its content is lost"),
            };
            return Err(usage(problem));
        };
        let mut paths = self.open_paths(&record, Some(device));
        paths.push(path.clone());
        let (state, own, wanted) = (self.state.clone(), record.uuid.clone(), path.clone());
        self.aside(move || {
            refuse_duplicates(paths.iter().map(PathBuf::as_path))?;
            refuse_adopted(&state, &wanted, &own)?;
            let why = write_protection(&wanted);
            why.map_or(Ok(()), |why| {
                Err(Error::new(ErrorKind::Io, why + ", then return the device (nothing was changed)"))
            })
        })
        .await?;
        self.volume().release_device(device).await?;
        self.members
            .borrow_mut()
            .iter_mut()
            .filter(|member| member.id == device)
            .for_each(|m| m.device = None);
        // udev comes a moment after the closing.
        self.wait_until_free(path.clone(), UDEV_COMES).await?;
        let (header, mut found) =
            open_paths(&self.ring, std::slice::from_ref(&path), &record.models, false).await?;
        let Member { id, device: opened, name, adopted } = found.remove(0);
        if header.volume.to_string() != record.uuid || id != device {
            let problem = format!(
                "{name} is {id} of volume '{}' ({}), not {device} of '{}' ({})",
                header.name, header.volume, self.name, record.uuid
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        let opened = opened.expect("a device that was opened is there");
        let note = |_| {
            let noted = self.state.change(&self.name, |record| {
                let noted = &mut record.devices[device.index()];
                (noted.path, noted.missing) = (Some(path), false);
                Ok(())
            });
            noted
                .map(drop)
                .map_err(|error| braid_engine::Error::new(braid_engine::ErrorKind::Io, error.to_string()))
        };
        self.volume().return_device_noted(opened.clone(), &name, note).await?;
        let devices = self.record()?.devices;
        let member = Member { id, device: Some(opened), name, adopted };
        let mut members = self.members.borrow_mut();
        members.iter_mut().filter(|m| m.id == device).for_each(|m| *m = member.clone());
        drop(members);
        self.excluded.borrow_mut().remove(&device);
        let (name, left_bytes) = (self.name.to_string(), self.left_bytes());
        Ok(AddReport { name, device: device.to_string(), devices, left_bytes })
    }

    /// Fails a device: it is no longer used.
    ///
    /// # Errors
    /// `Invalid` if the device is not in use, `Degraded` if it holds the only copy of some data.
    pub async fn fail_device(&self, device: DeviceId) -> Result<()> {
        let was_excluded = !self.excluded.borrow_mut().insert(device);
        let failed = self.volume().fail_device(device).await.map_err(Error::from);
        if failed.is_err() && !was_excluded {
            self.excluded.borrow_mut().remove(&device);
        }
        failed.map_err(|error| match (error.kind(), self.status().copies) {
            // No second copy will ever come: name the remedy.
            (ErrorKind::Degraded, 1) => {
                let name = &self.name;
                let problem = format!(
                    "{device} of volume '{name}' alone holds something, and the volume has one copy of everything: braid device remove {name} {device} \
                     moves it to the others"
                );
                Error::new(ErrorKind::Degraded, problem)
            }
            _ => error,
        })?;
        tracing::warn!(
            %device,
            "device {device} of volume '{}' was excluded by the administrator",
            self.name
        );
        Ok(())
    }

    /// Waits, for `first` at least, until the opening of a device will not keep guests: udev may hold a
    /// device for seconds.
    async fn wait_until_free(&self, path: PathBuf, first: Duration) -> Result<()> {
        self.aside(move || {
            std::thread::sleep(first);
            Ok(braid_uring::wait_until_free(&path)?)
        })
        .await
    }

    /// Returns the devices in the record. If the record cannot be read, returns `new` alone: a file that may
    /// be in use is then not removed.
    fn record_or(&self, new: &DeviceRecord) -> Vec<DeviceRecord> {
        self.record().map_or_else(|_| vec![new.clone()], |record| record.devices)
    }
}

/// Removes the file made for a device, unless the volume's record names the file.
fn remove_unused(known: &[DeviceRecord], new: &DeviceRecord) {
    let is_known = known.iter().any(|device| device.path == new.path);
    if let Some(path) = new.path.as_ref().filter(|_| new.made && !is_known)
        && let Err(error) = remove_made(path)
    {
        tracing::warn!("{} could not be removed: {error}", path.display());
    }
}
