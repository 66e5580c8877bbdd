//! What the state directory notes of a volume while the volume is served: paths of devices, outdated and
//! removed devices, and the promises of the volume.

use crate::Result;
use crate::served::ServedVolume;
use crate::served::first_of::{First, first_of};
use crate::state::noted::note;
use crate::state::outdated::note_opened;
use crate::state::state_dir::DeviceRecord;
use braid_base::{DeviceId, Nanos};
use braid_engine::Noted;
use braid_runtime::Runtime;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Time between two looks for removed devices, and before a failed note is tried again.
const LOOK_AGAIN: Nanos = Nanos::from_secs(1);
/// Time that the end of the daemon waits for a note.
const LAST_NOTE: Nanos = Nanos::from_secs(10);
/// Largest age of a note of the promises.
const OLDEST: Nanos = Nanos::from_secs(5);

/// Notes changes of the devices in the record for as long as the daemon runs: outdated devices at once,
/// removed devices within a second.
pub(crate) async fn note_changes(served: Rc<ServedVolume>) {
    let (mut failed, mut last_error) = (BTreeSet::new(), None);
    while !served.end.has_begun() {
        // A change of the size opens the volume again.
        let changes = served.volume().device_changes();
        let noted = served.note_outdated().await;
        served.catch_up.note(served.ring.now(), served.volume().glance().behind);
        served.note_removed(&mut failed).await;
        let again = served.ring.sleep(LOOK_AGAIN);
        if let Err(error) = noted {
            if last_error.as_ref() != Some(&error) {
                tracing::error!(
                    "the outdated devices of volume '{}' could not be recorded: {error}",
                    served.name
                );
            }
            last_error = Some(error);
            again.await;
            continue;
        }
        last_error = None;
        first_of(changes.wait_for(|| (!served.knows_outdated()).then_some(())), again).await;
    }
}

impl ServedVolume {
    /// True if the record names exactly the devices that are outdated now.
    fn knows_outdated(&self) -> bool {
        self.noted.borrow().as_ref() == Some(&self.volume().outdated_devices())
    }

    /// Notes in the record which devices are outdated. Works in a thread of its own: the state directory may
    /// lie on a device that hangs, and guests must not wait for the state directory.
    async fn note_outdated(&self) -> Result<()> {
        let _alone = self.noting.acquire(1).await;
        if self.knows_outdated() {
            return Ok(());
        }
        let (state, name, outdated) =
            (self.state.clone(), self.name.clone(), self.volume().outdated_devices());
        let (noted, places) = (outdated.clone(), self.places.borrow().clone());
        self.aside(move || note_opened(&state, &name, &places, &outdated)).await?;
        // Later changes of the record write the paths themselves.
        self.places.borrow_mut().clear();
        *self.noted.borrow_mut() = Some(noted);
        Ok(())
    }

    /// Calls [`ServedVolume::note_outdated`] when the daemon ends, and waits at most [`LAST_NOTE`].
    pub async fn note_outdated_at_last(&self) {
        let problem = match first_of(self.note_outdated(), self.ring.sleep(LAST_NOTE)).await {
            First::Left(Ok(())) => return,
            First::Left(Err(error)) => error.to_string(),
            First::Right(()) => format!("the state directory has not answered for {LAST_NOTE}"),
        };
        tracing::error!("the outdated devices of volume '{}' could not be recorded: {problem}", self.name);
    }

    /// Notes that the volume is closed, and removes the pending log.
    pub fn note_closed(&self) {
        self.lasting.end();
        let (name, uuid) = (&self.name, self.volume().superblock().volume.to_string());
        if let Err(error) = note(&self.state, name, &uuid, self.volume().noted(), None) {
            tracing::warn!("the shutdown of volume '{name}' could not be recorded: {error}");
        }
    }

    /// Notes removed devices in the record, then erases their superblocks. The order matters: a path in the
    /// record must lead to a device of the volume. Devices in `failed` are skipped; a new failure is added.
    pub async fn note_removed(&self, failed: &mut BTreeSet<DeviceId>) {
        for device in self.volume().removed_devices() {
            if failed.contains(&device) {
                continue;
            }
            match self.forget(device).await {
                Ok(()) => tracing::info!("device {device} of volume '{}' was removed", self.name),
                Err(error) => {
                    tracing::warn!("removed device {device} of volume '{}': {error}", self.name);
                    failed.insert(device);
                }
            }
        }
    }

    async fn forget(&self, device: DeviceId) -> Result<()> {
        self.state.change(&self.name, |record| {
            record.set_device(device.index(), DeviceRecord::removed());
            Ok(())
        })?;
        self.volume().erase_removed(device).await?;
        Ok(())
    }
}

/// Keeps the note up to date while a daemon serves. Warns if the pending log was removed, as at a logout of
/// the daemon's user.
pub(crate) async fn keep_noted(served: Rc<ServedVolume>, mut last: Noted) {
    let uuid = served.volume().superblock().volume.to_string();
    let log = served.lasting.noted().cloned();
    let (mut is_told, mut is_loss_told) = (false, false);
    while !served.end.has_begun() {
        served.ring.sleep(OLDEST).await;
        let failure = served.lasting.failure(true).filter(|_| !served.end.has_begun() && log.is_some());
        if let Some(failure) = failure.filter(|_| !std::mem::replace(&mut is_loss_told, true)) {
            tracing::warn!("a crash of this daemon loses unflushed data: {failure}");
        }
        let now = served.volume().noted();
        if now == last || served.end.has_begun() {
            continue;
        }
        let (state, name, uuid, log) = (served.state.clone(), served.name.clone(), uuid.clone(), log.clone());
        match served.aside(move || note(&state, &name, &uuid, now, log.as_ref())).await {
            Ok(()) => (last, is_told) = (now, false),
            Err(error) if !is_told => {
                is_told = true;
                tracing::warn!("the promises of volume '{}' could not be recorded: {error}", served.name);
            }
            Err(_) => {}
        }
    }
}
