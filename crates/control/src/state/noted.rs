//! Notes of this host about a volume: the last opening, the newest durable batch of the volume's journal, and
//! the path of the pending log.
//!
//! If an opening finds the volume in use, and this note names the earlier opening, that daemon has ended,
//! since the lock of the state directory is held. This proof needs a note written in this directory and in
//! this boot of the machine: a copy of a state directory has a copy of the note, and another lock. With any
//! other note the engine waits for another daemon to notice the new opening.
//!
//! A journal that ends before the noted batch has lost promised batches. The note lags by at most some
//! seconds. A missing or unreadable note costs the wait and proves nothing.

use crate::Result;
use crate::state::log_place::volume_dir;
use crate::state::outdated::note_outdated;
use crate::state::state_dir::{StateDir, VolumeName, VolumeRecord};
use braid_engine::{BeforeOpen, Noted, OpenOptions};
use braid_uring::{LastingFile, boot_id};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Content of the note's file.
#[derive(Serialize, Deserialize)]
struct NoteFile {
    /// The volume's UUID: another volume may have had the name.
    uuid: String,
    epoch: u64,
    owner: u64,
    batch: u64,
    /// Where the note was written: [`place`]. Older versions write none.
    #[serde(default)]
    place: Option<String>,
    /// The pending log, while the volume is open. Older versions write none.
    #[serde(default)]
    log: Option<NotedLog>,
}

/// The pending log in a note.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NotedLog {
    /// The file.
    pub path: String,
    /// Boot of the machine, by its boot ID.
    pub life: String,
    /// The volume's directory in the state directory. If this is another directory, the note is a copy.
    volume_dir: String,
}

impl NotedLog {
    /// Returns the note for a log; `None` if JSON cannot hold the path or the boot ID is unknown.
    pub fn of(state: &StateDir, record: &VolumeRecord, file: &LastingFile) -> Option<NotedLog> {
        let path = file.path().to_str()?.to_owned();
        let volume_dir = volume_dir(state, record).to_str()?.to_owned();
        Some(NotedLog { path, life: life()?, volume_dir })
    }

    /// Returns the directory that owns the log, if this volume is a copy. The other directory still exists,
    /// and its record has this UUID on other devices. A state directory that was moved is no copy.
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

/// Returns the boot ID of the machine, as written in notes.
pub(crate) fn life() -> Option<String> {
    boot_id().ok().map(|life| format!("{:032x}", u128::from_be_bytes(life)))
}

/// Returns this host's note of a volume; the default without a note. A note written elsewhere names no owner,
/// since the opening may not have ended. Its epoch and batch were promised all the same.
pub(crate) fn noted(state: &StateDir, record: &VolumeRecord) -> Noted {
    let Some(NoteFile { epoch, owner, batch, place: written, .. }) = read(state, record) else {
        return Noted::default();
    };
    let is_own = written.is_some() && written == place(state, &record.name);
    Noted { epoch, owner: if is_own { owner } else { 0 }, batch }
}

/// Returns the boot ID and the identity of the note's directory. A copy of the directory has another
/// identity.
fn place(state: &StateDir, name: &VolumeName) -> Option<String> {
    let known = std::fs::metadata(state.note_file(name).parent()?).ok()?;
    Some(format!("{} {} {}", life()?, known.dev(), known.ino()))
}

/// Returns the pending log in the note of a volume. The outer option is `None` without a note. The inner
/// option is `None` after a shutdown, or if the daemon was of an older version.
pub(crate) fn noted_log(state: &StateDir, record: &VolumeRecord) -> Option<Option<NotedLog>> {
    read(state, record).map(|note| note.log)
}

fn read(state: &StateDir, record: &VolumeRecord) -> Option<NoteFile> {
    let (mut text, file) = (String::new(), File::open(state.note_file(&record.name)).ok()?);
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    serde_json::from_str::<NoteFile>(&text).ok().filter(|note| note.uuid == record.uuid)
}

/// Limit of a note's length: far more than two paths and some numbers.
const LONGEST: u64 = 64 << 10;

/// Adds to the options this host's note, a random number for the opening, and a call before the opening. The
/// call notes the devices that will be outdated. Without the call, an opening that dies half-way could leave
/// one half of a mirror marked, and no note about the other half.
pub(crate) fn with_notes(options: OpenOptions, state: &StateDir, record: &VolumeRecord) -> OpenOptions {
    let (host, name) = (state.clone(), record.name.clone());
    let before_open = BeforeOpen(Rc::new(move |outdated| {
        if let Err(error) = note_outdated(&host, &name, outdated) {
            tracing::error!(
                "the outdated devices of volume '{name}' ({outdated:?}) could not be recorded: {error}"
            );
        }
    }));
    let (owner, noted) = (random_owner(), Some(noted(state, record)));
    OpenOptions { owner, noted, before_open: Some(before_open), ..options }
}

/// Returns a random number for an opening.
pub(crate) fn random_owner() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// Writes the note durably, with the pending log of an open volume. The caller holds the volume's lock.
pub(crate) fn note(
    state: &StateDir,
    name: &VolumeName,
    uuid: &str,
    noted: Noted,
    log: Option<&NotedLog>,
) -> Result<()> {
    let Noted { epoch, owner, batch } = noted;
    let place = place(state, name);
    let note = NoteFile { uuid: uuid.to_owned(), epoch, owner, batch, place, log: log.cloned() };
    state.save_note(name, &serde_json::to_string(&note).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Regression: a state directory copied while the volume was served held the note of the live daemon. An
    /// opening by the copy took the daemon for dead: flushed writes of the daemon were lost.
    #[test]
    fn copied_note_keeps_the_batch_but_drops_the_owner() {
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
        note(&original, &record.name, &record.uuid, last, None).unwrap();
        std::fs::copy(original.note_file(&record.name), copy.note_file(&record.name)).unwrap();
        assert_eq!(noted(&original, &record), last);
        // The number identifies old copies of all devices.
        assert_eq!(noted(&copy, &record), Noted { owner: 0, ..last });
    }
}
