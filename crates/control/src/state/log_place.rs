//! Directories and file names of pending logs. The directories are in file systems in memory.

use crate::state::state_dir::{StateDir, VolumeRecord};
use rustix::fs::statfs;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Environment variable that names the directory.
pub(crate) const VARIABLE: &str = "BRAID_RUNTIME_DIR";

/// File name extension of logs.
const EXTENSION: &str = "pending";

/// Returns the file name of a volume's log, different for each volume directory in a state directory.
pub(crate) fn file_name(state: &StateDir, record: &VolumeRecord) -> String {
    let place = volume_dir(state, record);
    // FNV-1a: stable across versions.
    let hash = place.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{}-{hash:016x}.{EXTENSION}", record.uuid)
}

/// Returns the file name used by earlier versions.
pub(crate) fn old_file_name(record: &VolumeRecord) -> String {
    format!("{}.{EXTENSION}", record.uuid)
}

/// True if a file with this name may be a log of the volume.
pub(crate) fn may_be_of(record: &VolumeRecord, path: &Path) -> bool {
    let name =
        path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(&record.uuid));
    let middle = name.and_then(|name| name.strip_suffix(&format!(".{EXTENSION}")));
    middle.is_some_and(|middle| {
        let hash = middle.strip_prefix('-');
        middle.is_empty()
            || hash.is_some_and(|hash| hash.len() == 16 && hash.chars().all(|c| c.is_ascii_hexdigit()))
    })
}

/// Returns the volume's directory in the state directory, with symbolic links resolved.
pub(crate) fn volume_dir(state: &StateDir, record: &VolumeRecord) -> PathBuf {
    let dir = state.volume_dir(&record.name);
    dir.canonicalize().unwrap_or(dir)
}

/// Returns directories for a new log, the best first: a directory that outlives the user's logins.
pub(crate) fn directories() -> Vec<PathBuf> {
    named().map_or_else(usual, |dir| vec![dir])
}

/// Returns all directories where a log may have been left, whatever the previous daemon's environment was.
pub(crate) fn all_directories() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = named().into_iter().chain(usual()).collect();
    let of_session = format!("/run/user/{}/braid", rustix::process::geteuid().as_raw());
    dirs.push(of_session.into());
    let all = dirs.clone();
    let mut place = 0..;
    dirs.retain(|dir| {
        let place = place.next().unwrap_or_default();
        !all[..place].contains(dir)
    });
    dirs
}

fn named() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

fn usual() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let shared = PathBuf::from(format!("/dev/shm/braid-{}", user.as_raw()));
    if user.is_root() {
        return vec!["/run/braid".into(), shared];
    }
    let session = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    [shared].into_iter().chain(session.map(|dir| PathBuf::from(dir).join("braid"))).collect()
}

/// Makes the directory if it does not exist, for this user alone.
///
/// # Errors
/// As [`verify`].
pub(crate) fn prepare(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    verify(dir)
}

/// Checks that a directory is fit for logs.
///
/// # Errors
/// If other users may change the directory, or if the directory is on a disk.
pub(crate) fn verify(dir: &Path) -> io::Result<()> {
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
