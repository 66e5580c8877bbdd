//! What this host notes of a volume beside its devices: which opening had the volume last, the newest batch
//! of its journal that was durable, and where the pending log is.
//!
//! An opening that finds the volume in use, and this note of that opening, knows that the daemon has ended:
//! the lock of the state directory is held. That holds for a note that was written in this directory, in this
//! life of the machine: a copy of a state directory has a copy of the note, and another lock. With any other
//! note the engine waits for another daemon to notice the new one. And a journal that ends before the noted
//! batch has lost promised batches. The note is at most some seconds older than the truth; no note, and a
//! note that cannot be read, cost the wait and prove nothing.

use crate::Result;
use crate::serve::daemon::Daemon;
use crate::volume::log_place::volume_dir;
use crate::volume::outdated::note_outdated;
use crate::volume::state_dir::{StateDir, VolumeName, VolumeRecord};
use braid_base::Nanos;
use braid_engine::{BeforeOpen, Noted, OpenOptions};
use braid_runtime::Runtime;
use braid_uring::{LastingFile, boot_id};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How old a note may become while the volume is served.
const OLDEST: Nanos = Nanos::from_secs(5);
/// How often is asked whether a note is written.
const POLL: Nanos = Nanos::from_millis(10);

/// The note in its file.
#[derive(Serialize, Deserialize)]
struct Note {
    /// The volume: another one may have had the name.
    uuid: String,
    epoch: u64,
    owner: u64,
    batch: u64,
    /// Where the note was written: [`place`]. An older version notes none.
    #[serde(default)]
    place: Option<String>,
    /// The pending log, while the volume is open; an older version notes none.
    #[serde(default)]
    log: Option<NotedLog>,
}

/// Where a pending log is, as the note has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NotedLog {
    /// The file.
    pub path: String,
    /// The life of the machine.
    pub life: String,
    /// The volume's directory in the state directory. With another one, the note came from there.
    volume_dir: String,
}

impl NotedLog {
    /// What to note of a log; nothing of a log whose path JSON cannot hold.
    pub fn of(state: &StateDir, record: &VolumeRecord, file: &LastingFile) -> Option<NotedLog> {
        let path = file.path().to_str()?.to_owned();
        let volume_dir = volume_dir(state, record).to_str()?.to_owned();
        Some(NotedLog { path, life: life()?, volume_dir })
    }

    /// The directory that the log belongs to if this volume is a copy: the other directory is still there,
    /// and knows a volume with this UUID on other devices. A state directory that was moved has no copy.
    pub fn other_owner(&self, state: &StateDir, record: &VolumeRecord) -> Option<PathBuf> {
        let other = Path::new(&self.volume_dir);
        if other == volume_dir(state, record) {
            return None;
        }
        let name = other.file_name()?.to_str()?.parse().ok()?;
        let known = StateDir::new(other.parent()?).ok()?.load(&name).ok()?;
        let is_other = known.uuid == record.uuid && known.paths().ok() != record.paths().ok();
        is_other.then(|| other.to_owned())
    }
}

/// This life of the machine, as notes have it.
pub(crate) fn life() -> Option<String> {
    boot_id().ok().map(|life| format!("{:032x}", u128::from_be_bytes(life)))
}

/// What this host noted of a volume; nothing without a note. A note that was written elsewhere names no
/// owner: the opening may not have ended. Number and batch were promised all the same.
pub(crate) fn noted(state: &StateDir, record: &VolumeRecord) -> Noted {
    let Some(Note { epoch, owner, batch, place: written, .. }) = read(state, record) else {
        return Noted::default();
    };
    let is_own = written.is_some() && written == place(state, &record.name);
    Noted { epoch, owner: if is_own { owner } else { 0 }, batch }
}

/// The life of the machine, and the directory of the volume's notes: a copy of the directory is another one.
fn place(state: &StateDir, name: &VolumeName) -> Option<String> {
    let known = std::fs::metadata(state.note_file(name).parent()?).ok()?;
    Some(format!("{} {} {}", life()?, known.dev(), known.ino()))
}

/// The pending log in the note of a volume. The outer option is `None` without a note, the inner one after a
/// shutdown, or if the daemon was of an older version.
pub(crate) fn noted_log(state: &StateDir, record: &VolumeRecord) -> Option<Option<NotedLog>> {
    read(state, record).map(|note| note.log)
}

fn read(state: &StateDir, record: &VolumeRecord) -> Option<Note> {
    let (mut text, file) = (String::new(), File::open(state.note_file(&record.name)).ok()?);
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    serde_json::from_str::<Note>(&text).ok().filter(|note| note.uuid == record.uuid)
}

/// Far more than two paths and some numbers.
const LONGEST: u64 = 64 << 10;

/// The options with what this host noted, with a random number for the opening, and with a note of the
/// devices that are outdated from now on: an opening that dies must not leave a half that says so, and no
/// note for the other half.
pub(crate) fn with_notes(options: OpenOptions, state: &StateDir, record: &VolumeRecord) -> OpenOptions {
    let (host, name) = (state.clone(), record.name.clone());
    let before_open = BeforeOpen(Rc::new(move |outdated| {
        if let Err(error) = note_outdated(&host, &name, outdated) {
            tracing::error!(
                "which devices of volume '{name}' are outdated ({outdated:?}) is not noted: {error}"
            );
        }
    }));
    let (owner, noted) = (random_owner(), Some(noted(state, record)));
    OpenOptions { owner, noted, before_open: Some(before_open), ..options }
}

/// A random number for an opening.
pub(crate) fn random_owner() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// Writes the note durably, with the pending log of a volume that is open. The caller holds the volume's
/// lock.
pub(crate) fn note(
    state: &StateDir,
    name: &VolumeName,
    uuid: &str,
    (noted, log): (Noted, Option<&NotedLog>),
) -> Result<()> {
    let Noted { epoch, owner, batch } = noted;
    let place = place(state, name);
    let note = Note { uuid: uuid.to_owned(), epoch, owner, batch, place, log: log.cloned() };
    state.save_note(name, &serde_json::to_string(&note).unwrap_or_default())
}

/// Keeps the note up to date while a daemon serves. In a thread of its own: the state directory may lie on a
/// device that hangs. Says if the pending log was removed, as at a logout of the daemon's user.
pub(crate) async fn keep_noted(daemon: Rc<Daemon>, mut last: Noted) {
    let uuid = daemon.volume.superblock().volume.to_string();
    let log = daemon.lasting.noted().cloned();
    let (mut is_told, mut is_loss_told) = (false, false);
    while !daemon.is_stopping() {
        daemon.ring.sleep(OLDEST).await;
        let failure = daemon.lasting.failure(true).filter(|_| !daemon.is_stopping() && log.is_some());
        if let Some(failure) = failure.filter(|_| !std::mem::replace(&mut is_loss_told, true)) {
            tracing::warn!("a crash of this daemon loses what is not flushed: {failure}");
        }
        let now = daemon.volume.noted();
        if now == last || daemon.is_stopping() {
            continue;
        }
        let (state, name, uuid, log) = (daemon.state.clone(), daemon.name.clone(), uuid.clone(), log.clone());
        let noting = std::thread::spawn(move || note(&state, &name, &uuid, (now, log.as_ref())));
        while !noting.is_finished() {
            daemon.ring.sleep(POLL).await;
        }
        match noting.join().expect("a thread that writes a note does not panic") {
            Ok(()) => (last, is_told) = (now, false),
            Err(error) if !is_told => {
                is_told = true;
                tracing::warn!("what volume '{}' has promised is not noted: {error}", daemon.name);
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A copy of a state directory, made while the volume was served, had the note of the living daemon. An
    /// opening by the copy took that daemon for an ended one: flushed writes of that daemon were lost.
    #[test]
    fn a_copied_note_promises_its_batch_and_no_end_of_a_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let [original, copy] = ["one", "two"].map(|name| StateDir::new(&dir.path().join(name)).unwrap());
        let record = VolumeRecord {
            version: 1,
            name: "vault".parse().unwrap(),
            uuid: "u".to_owned(),
            temporary: false,
            devices: Vec::new(),
            models: BTreeMap::new(),
        };
        for state in [&original, &copy] {
            state.save(&record).unwrap();
        }
        let last = Noted { epoch: 4, owner: 7, batch: 90 };
        note(&original, &record.name, &record.uuid, (last, None)).unwrap();
        std::fs::copy(original.note_file(&record.name), copy.note_file(&record.name)).unwrap();
        assert_eq!(noted(&original, &record), last);
        // Old copies of all devices are told by the number.
        assert_eq!(noted(&copy, &record), Noted { owner: 0, ..last });
    }
}
