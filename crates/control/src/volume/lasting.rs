//! Memory that outlives a daemon: a file for each volume, in a file system in memory. If the daemon dies,
//! what it acknowledged and had not flushed is recovered from there.
//!
//! A directory on a disk is refused. The kernel writes such a file back, and a store in it may wait for that:
//! for a disk, for a network, or for the volume itself.
//!
//! ```text
//! $BRAID_RUNTIME_DIR/UUID-PLACE.pending     if that is set
//! /run/braid/…                              for root
//! /dev/shm/braid-USERID/…                   for other users, and if /run/braid cannot be had
//! $XDG_RUNTIME_DIR/braid/…                  if neither can be had: gone after the last logout of the user
//! ```
//!
//! PLACE stands for the volume's directory in the state directory. So a copy of the volume that is known to
//! another state directory has a log of its own. Where to find the log of a daemon that died is noted durably
//! in the state directory: the environment of the next daemon may be another one.

use crate::volume::left_log::{Left, find_left};
use crate::volume::log_place::{VARIABLE, directories, file_name, prepare};
use crate::volume::noted::NotedLog;
use crate::volume::state_dir::{StateDir, VolumeRecord};
use braid_base::Bytes;
use braid_engine::LARGEST_LOG;
use braid_runtime::LastingMemory;
use braid_uring::LastingFile;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What outlives the daemon of a volume.
#[derive(Clone, Debug)]
pub(crate) enum Lasting {
    /// This file, and what to note of it.
    File(Rc<LastingFile>, Option<NotedLog>),
    /// Nothing, and why.
    Nothing(String),
    /// Nothing, for the volume ends with the daemon.
    Temporary,
}

impl Lasting {
    /// That of a volume. The caller holds the volume's lock.
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
        // The directory of a log that is left is better than none.
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

    /// What is left of a daemon of a volume that died.
    pub fn left(state: &StateDir, record: &VolumeRecord) -> Option<PathBuf> {
        find_left(state, record).path
    }

    /// For the engine.
    pub fn memory(&self) -> Option<Rc<dyn LastingMemory>> {
        match self {
            Lasting::File(file, _) => Some(file.clone()),
            Lasting::Nothing(_) | Lasting::Temporary => None,
        }
    }

    /// Where it is, as long as the next daemon finds it there.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Lasting::File(file, _) if file.is_in_place() => Some(file.path().to_owned()),
            _ => None,
        }
    }

    /// What is to be noted of it while the volume is open.
    pub fn noted(&self) -> Option<&NotedLog> {
        match self {
            Lasting::File(_, noted) => noted.as_ref(),
            Lasting::Nothing(_) | Lasting::Temporary => None,
        }
    }

    /// Why nothing does; `is_used` says whether the engine found room.
    pub fn failure(&self, is_used: bool) -> Option<String> {
        match self {
            Lasting::Nothing(why) => Some(why.clone()),
            Lasting::File(file, _) if !is_used => Some(format!("no room for {}", file.path().display())),
            Lasting::File(file, _) if !file.is_in_place() => {
                let path = file.path().display();
                Some(format!(
                    "{path} was removed, as systemd does at a logout: stop the daemon, and serve anew"
                ))
            }
            Lasting::File(..) | Lasting::Temporary => None,
        }
    }

    /// Says if nothing outlives the daemon of a volume that does.
    pub fn warn(&self, record: &VolumeRecord) {
        if let Lasting::Nothing(why) = self {
            let name = &record.name;
            tracing::warn!("a crash of this daemon loses what is not flushed of volume '{name}': {why}");
        }
    }

    /// The volume was closed: removes the file, in which nothing counts any more.
    pub fn end(&self) {
        if let Lasting::File(file, _) = self
            && let Err(error) = file.remove()
        {
            tracing::warn!("{error}");
        }
    }
}

/// What a daemon that died has left elsewhere counts until the volume is open.
fn take_over(file: &LastingFile, left: Option<&Path>, record: &VolumeRecord) {
    let Some(left) = left.filter(|left| *left != file.path()) else { return };
    if let Err(error) = file.take_over(left) {
        tracing::warn!(
            "the pending log of volume '{}' cannot be read: {error}; it is as after a power cut",
            record.name
        );
    }
}

const _: () = assert!(LARGEST_LOG.0 <= Bytes(64 << 20).0, "a log takes a small part of a machine's memory");
