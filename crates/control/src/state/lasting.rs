//! Memory that outlives a daemon: the pending log, one file for each volume in a file system in memory. If
//! the daemon dies, acknowledged writes that were not flushed are recovered from this file.
//!
//! A directory on a disk is refused. The kernel would write the file back, and a store to the file could wait
//! for the disk, a network, or the volume itself.
//!
//! ```text
//! $BRAID_RUNTIME_DIR/UUID-PLACE.pending     if that is set
//! /run/braid/…                              for root
//! /dev/shm/braid-USERID/…                   for other users, and if /run/braid cannot be had
//! $XDG_RUNTIME_DIR/braid/…                  if neither can be had: gone after the last logout of the user
//! ```
//!
//! PLACE stands for the volume's directory in the state directory: a copy of the volume in another state
//! directory has a log of its own. The state directory durably notes the path of a dead daemon's log, since
//! the next daemon's environment may differ.

use crate::state::left_log::{Left, find_left};
use crate::state::log_place::{VARIABLE, directories, file_name, prepare};
use crate::state::noted::NotedLog;
use crate::state::state_dir::{StateDir, VolumeRecord};
use braid_base::Bytes;
use braid_engine::LARGEST_LOG;
use braid_runtime::LastingMemory;
use braid_uring::LastingFile;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Memory that outlives the daemon of a volume.
#[derive(Clone, Debug)]
pub(crate) enum Lasting {
    /// The pending log's file, and its note for the state directory.
    File(Rc<LastingFile>, Option<NotedLog>),
    /// None, with the reason.
    Nothing(String),
    /// None: the volume ends with the daemon.
    Temporary,
}

impl Lasting {
    /// Returns the lasting memory of a volume. The caller holds the volume's lock.
    pub fn of(state: &StateDir, record: &VolumeRecord) -> Lasting {
        if record.temporary {
            return Lasting::Temporary;
        }
        if !record.uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
            return Lasting::Nothing(format!("'{}' in the volume's record is no UUID", record.uuid));
        }
        let Left { path: left, warnings } = find_left(state, record);
        for warning in warnings {
            tracing::warn!("volume '{}': {warning}", record.name);
        }
        let name = file_name(state, record);
        let mut refusals = Vec::new();
        // If no usual directory can be had, use the directory of the log that was left.
        let beside = left.as_deref().and_then(Path::parent).map(Path::to_owned);
        for dir in directories().into_iter().chain(beside) {
            match prepare(&dir).and_then(|()| LastingFile::open(&dir.join(&name), LARGEST_LOG)) {
                Ok(file) => {
                    take_over(&file, left.as_deref(), record);
                    let noted = NotedLog::of(state, record, &file);
                    return Lasting::File(Rc::new(file), noted);
                }
                Err(error) => refusals.push(format!("{}: {error}", dir.display())),
            }
        }
        Lasting::Nothing(format!(
            "no directory in memory (tmpfs) for the pending log ({}): set {VARIABLE}",
            refusals.join("; ")
        ))
    }

    /// Returns the pending log that a dead daemon of the volume has left.
    pub fn left(state: &StateDir, record: &VolumeRecord) -> Option<PathBuf> {
        find_left(state, record).path
    }

    /// Returns the memory for the engine.
    pub fn memory(&self) -> Option<Rc<dyn LastingMemory>> {
        match self {
            Lasting::File(file, _) => Some(file.clone()),
            Lasting::Nothing(_) | Lasting::Temporary => None,
        }
    }

    /// Returns the path of the log, if the next daemon will find the log there.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Lasting::File(file, _) if file.is_in_place() => Some(file.path().to_owned()),
            _ => None,
        }
    }

    /// Returns the note for the state directory while the volume is open.
    pub fn noted(&self) -> Option<&NotedLog> {
        match self {
            Lasting::File(_, noted) => noted.as_ref(),
            Lasting::Nothing(_) | Lasting::Temporary => None,
        }
    }

    /// Explains why nothing outlives the daemon. `is_used` tells if the engine found room for its log.
    pub fn failure(&self, is_used: bool) -> Option<String> {
        match self {
            Lasting::Nothing(why) => Some(why.clone()),
            Lasting::File(file, _) if !is_used => Some(format!("no room for {}", file.path().display())),
            Lasting::File(file, _) if !file.is_in_place() => {
                let path = file.path().display();
                Some(format!(
                    "{path} was removed, as systemd does at a logout: stop the daemon, and serve the volume \
                     again"
                ))
            }
            Lasting::File(..) | Lasting::Temporary => None,
        }
    }

    /// Warns if the volume should have a pending log and has none.
    pub fn warn(&self, record: &VolumeRecord) {
        if let Lasting::Nothing(why) = self {
            let name = &record.name;
            tracing::warn!("a crash of this daemon loses unflushed data of volume '{name}': {why}");
        }
    }

    /// Removes the file after the volume was closed: the content no longer counts.
    pub fn end(&self) {
        if let Lasting::File(file, _) = self
            && let Err(error) = file.remove()
        {
            tracing::warn!("{error}");
        }
    }
}

/// Uses a dead daemon's log in another directory as this log, until the volume is open.
fn take_over(file: &LastingFile, left: Option<&Path>, record: &VolumeRecord) {
    let Some(left) = left.filter(|left| *left != file.path()) else { return };
    if let Err(error) = file.take_over(left) {
        tracing::warn!(
            "the pending log of volume '{}' cannot be read: {error}; the volume is in the state after a \
             power cut",
            record.name
        );
    }
}

const _: () = assert!(LARGEST_LOG.0 <= Bytes(64 << 20).0, "a log takes a small part of a machine's memory");
