//! Memory that outlives a daemon: a file for each volume, in a file system in memory. If the daemon dies,
//! what it acknowledged and had not flushed is recovered from there.
//!
//! A directory on a disk is refused. The kernel writes such a file back, and a store in it may wait for that:
//! for a disk, for a network, or for the volume itself.
//!
//! ```text
//! $BRAID_RUNTIME_DIR/UUID.pending     if that is set
//! /run/braid/UUID.pending             for root
//! $XDG_RUNTIME_DIR/braid/…            for other users
//! /dev/shm/braid-USERID/…             if that cannot be had
//! ```

use crate::volume::state_dir::VolumeRecord;
use braid_base::Bytes;
use braid_engine::LARGEST_LOG;
use braid_runtime::LastingMemory;
use braid_uring::LastingFile;
use rustix::fs::statfs;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What outlives the daemon of a volume.
#[derive(Clone, Debug)]
pub(crate) enum Lasting {
    /// This file.
    File(Rc<LastingFile>),
    /// Nothing, and why.
    Nothing(String),
    /// Nothing, for the volume ends with the daemon.
    Temporary,
}

/// The variable that names the directory.
const VARIABLE: &str = "BRAID_RUNTIME_DIR";

impl Lasting {
    /// That of a volume.
    pub fn of(record: &VolumeRecord) -> Lasting {
        if record.temporary {
            return Lasting::Temporary;
        }
        if !record.uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
            return Lasting::Nothing(format!("'{}' in the volume's record is no UUID", record.uuid));
        }
        let mut refusals = Vec::new();
        for dir in directories() {
            let path = path_in(&dir, record);
            let file = prepare(&dir).and_then(|()| LastingFile::open(&path, LARGEST_LOG));
            match file {
                Ok(file) => return Lasting::File(Rc::new(file)),
                Err(error) => refusals.push(format!("{}: {error}", dir.display())),
            }
        }
        Lasting::Nothing(format!(
            "no directory in memory (tmpfs) for the pending log ({}): set {VARIABLE}",
            refusals.join("; ")
        ))
    }

    /// What is left of a daemon of a volume that died.
    pub fn left(record: &VolumeRecord) -> Option<PathBuf> {
        directories().iter().map(|dir| path_in(dir, record)).find(|path| path.exists())
    }

    /// For the engine.
    pub fn memory(&self) -> Option<Rc<dyn LastingMemory>> {
        match self {
            Lasting::File(file) => Some(file.clone()),
            Lasting::Nothing(_) | Lasting::Temporary => None,
        }
    }

    /// Where it is.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Lasting::File(file) => Some(file.path().to_owned()),
            Lasting::Nothing(_) | Lasting::Temporary => None,
        }
    }

    /// Why nothing does; `is_used` says whether the engine found room.
    pub fn failure(&self, is_used: bool) -> Option<String> {
        match self {
            Lasting::Nothing(why) => Some(why.clone()),
            Lasting::File(file) if !is_used => Some(format!("no room for {}", file.path().display())),
            Lasting::File(_) | Lasting::Temporary => None,
        }
    }

    /// Says if nothing outlives the daemon of a volume that does.
    pub fn warn(&self, record: &VolumeRecord) {
        if let Lasting::Nothing(why) = self {
            let name = &record.name;
            tracing::warn!("a crash of this daemon loses what is not flushed of volume '{name}': {why}");
        }
    }

    /// The volume was closed: removes the file if nothing in it counts any more.
    pub fn end(&self) {
        if let Lasting::File(file) = self
            && let Err(error) = std::fs::remove_file(file.path())
        {
            tracing::warn!("{} could not be removed: {error}", file.path().display());
        }
    }
}

fn path_in(dir: &Path, record: &VolumeRecord) -> PathBuf {
    dir.join(format!("{}.pending", record.uuid))
}

/// Where to look.
fn directories() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os(VARIABLE).filter(|dir| !dir.is_empty()) {
        return vec![dir.into()];
    }
    let user = rustix::process::geteuid();
    let usual = match user.is_root() {
        true => Some(PathBuf::from("/run")),
        false => std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from),
    };
    let usual = usual.map(|dir| dir.join("braid"));
    usual.into_iter().chain([format!("/dev/shm/braid-{}", user.as_raw()).into()]).collect()
}

/// Makes the directory if it is not there, for this user alone.
fn prepare(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let known = std::fs::symlink_metadata(dir)?;
    let is_own = known.uid() == rustix::process::geteuid().as_raw() && known.permissions().mode() & 0o22 == 0;
    if !known.is_dir() || !is_own {
        return Err(io::Error::other("it is no directory that this user alone may change"));
    }
    match is_in_memory(dir)? {
        true => Ok(()),
        false => Err(io::Error::other("it lies on a disk")),
    }
}

fn is_in_memory(dir: &Path) -> io::Result<bool> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let kind = statfs(dir)?.f_type as u64 & 0xffff_ffff;
    Ok([TMPFS, RAMFS].contains(&kind))
}

const _: () = assert!(LARGEST_LOG.0 <= Bytes(64 << 20).0, "a log takes a small part of a machine's memory");
