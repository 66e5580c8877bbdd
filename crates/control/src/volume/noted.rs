//! What this host notes of a volume beside its devices: which opening had the volume last, and the newest
//! batch of its journal that was durable.
//!
//! An opening that finds the volume in use, and this note of that opening, knows that the daemon has ended:
//! the lock of the state directory is held. With any other note the engine waits for another daemon to notice
//! the new one. And a journal that ends before the noted batch has lost promised batches. The note is at most
//! some seconds older than the truth; no note, and a note that cannot be read, cost the wait and prove
//! nothing.

use crate::Result;
use crate::serve::daemon::Daemon;
use crate::volume::outdated::note_outdated;
use crate::volume::state_dir::{StateDir, VolumeName, VolumeRecord};
use braid_base::Nanos;
use braid_engine::{BeforeOpen, Noted, OpenOptions};
use braid_runtime::Runtime;
use serde::{Deserialize, Serialize};
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
}

/// What this host noted of a volume; nothing if there is no note of it.
pub(crate) fn noted(state: &StateDir, record: &VolumeRecord) -> Noted {
    let text = std::fs::read_to_string(state.note_file(&record.name)).unwrap_or_default();
    let note = serde_json::from_str::<Note>(&text).ok().filter(|note| note.uuid == record.uuid);
    note.map_or(Noted::default(), |Note { epoch, owner, batch, .. }| Noted { epoch, owner, batch })
}

/// The options with what this host noted, with a random number for the opening, and with a note of the devices that are
/// outdated from now on: an opening that dies must not leave a half that says so, and no note for the other half.
pub(crate) fn with_notes(options: OpenOptions, state: &StateDir, record: &VolumeRecord) -> OpenOptions {
    let owner = uuid::Uuid::new_v4().as_u64_pair().0;
    let (host, name) = (state.clone(), record.name.clone());
    let before_open = BeforeOpen(Rc::new(move |outdated| {
        if let Err(error) = note_outdated(&host, &name, outdated) {
            tracing::error!(
                "which devices of volume '{name}' are outdated ({outdated:?}) is not noted: {error}"
            );
        }
    }));
    OpenOptions { owner, noted: Some(noted(state, record)), before_open: Some(before_open), ..options }
}

/// Writes the note durably. The caller holds the volume's lock.
pub(crate) fn note(state: &StateDir, name: &VolumeName, uuid: &str, noted: Noted) -> Result<()> {
    let Noted { epoch, owner, batch } = noted;
    let note = Note { uuid: uuid.to_owned(), epoch, owner, batch };
    state.save_note(name, &serde_json::to_string(&note).unwrap_or_default())
}

/// Keeps the note up to date while a daemon serves. In a thread of its own: the state directory may lie on a
/// device that hangs.
pub(crate) async fn keep_noted(daemon: Rc<Daemon>, mut last: Noted) {
    let uuid = daemon.volume.superblock().volume.to_string();
    let mut is_told = false;
    while !daemon.is_stopping() {
        daemon.ring.sleep(OLDEST).await;
        let now = daemon.volume.noted();
        if now == last || daemon.is_stopping() {
            continue;
        }
        let (state, name, uuid) = (daemon.state.clone(), daemon.name.clone(), uuid.clone());
        let noting = std::thread::spawn(move || note(&state, &name, &uuid, now));
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
