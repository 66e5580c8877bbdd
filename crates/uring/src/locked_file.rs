//! A regular file at a path, locked by this process while open. The kernel releases the lock at any end of
//! the process.

use crate::open::failed;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process that was killed may take to give its lock back: the kernel frees the memory of the
/// process first.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5_000 });
/// How often the lock is tried meanwhile.
const POLL: Duration = Duration::from_millis(10);

/// The file and its path. The lock excludes other processes only while the file is at the path.
pub(crate) struct LockedFile {
    path: PathBuf,
    file: File,
}

/// What an opening does if the path holds no file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Made,
    Refused,
}

impl LockedFile {
    /// Opens the file at a path for reading and writing.
    ///
    /// # Errors
    /// If the file cannot be had, is no regular file of this user alone, or is locked by another process for
    /// longer than a death takes.
    pub fn open(path: &Path, missing: Missing) -> io::Result<LockedFile> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(missing == Missing::Made).truncate(false).mode(0o600);
        options.custom_flags(flags as i32);
        let start = Instant::now();
        loop {
            let file = options.open(path).map_err(|e| failed(path, "open", e))?;
            refuse_strange(&file, path)?;
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            let file = LockedFile { path: path.to_owned(), file };
            match locked {
                Ok(()) if file.is_in_place() => return Ok(file),
                Ok(()) | Err(Errno::WOULDBLOCK) if start.elapsed() < PATIENCE => std::thread::sleep(POLL),
                Ok(()) | Err(Errno::WOULDBLOCK) => {
                    let problem = format!("another process has {} in use", path.display());
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, problem));
                }
                Err(error) => return Err(failed(path, "lock", error.into())),
            }
        }
    }

    /// Makes a new file at a path. A file that is already there is removed: the caller knows that no other
    /// process uses the path.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn make(path: &Path) -> io::Result<LockedFile> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(path, "remove", error));
            }
            _ => {}
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(|e| failed(path, "make", e))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(path, "lock", e.into()))?;
        Ok(LockedFile { path: path.to_owned(), file })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the path still leads to this file.
    pub fn is_in_place(&self) -> bool {
        let (Ok(own), Ok(there)) = (self.file.metadata(), std::fs::symlink_metadata(&self.path)) else {
            return false;
        };
        (own.dev(), own.ino()) == (there.dev(), there.ino())
    }

    /// Moves the file to the path of `old`, in one step: a process with `old` open keeps all of `old`.
    ///
    /// # Errors
    /// If another file has come to the place of `old`, and those of the file system: the file is gone then.
    pub fn replace(self, old: &LockedFile) -> io::Result<LockedFile> {
        let moved = self.move_to(old);
        if let Err(error) = moved {
            self.remove()?;
            return Err(error);
        }
        Ok(LockedFile { path: old.path.clone(), file: self.file })
    }

    fn move_to(&self, old: &LockedFile) -> io::Result<()> {
        let path = old.path();
        let is_gone = std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        if !old.is_in_place() && !is_gone {
            let problem = format!("another process has replaced {}", path.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, problem));
        }
        std::fs::rename(&self.path, path).map_err(|e| failed(path, "replace", e))
    }

    /// Removes the file from its path, unless another file is there.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove(&self) -> io::Result<()> {
        match self.is_in_place() {
            true => std::fs::remove_file(&self.path).map_err(|e| failed(&self.path, "remove", e)),
            false => Ok(()),
        }
    }
}

fn refuse_strange(file: &File, path: &Path) -> io::Result<()> {
    let known = file.metadata().map_err(|e| failed(path, "look at", e))?;
    let is_own = known.uid() == rustix::process::geteuid().as_raw() && known.permissions().mode() & 0o77 == 0;
    if known.is_file() && is_own {
        return Ok(());
    }
    let problem = format!(
        "{} is not a regular file that only this user may open: see which user made it, and remove it",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}
