//! One process works on a volume: a lock on a file in the state directory, which the kernel gives back when the process
//! ends, however it ends. The file names the process that holds it, for the error message of the next one.

use crate::volume::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The lock of a volume, held until dropped.
#[derive(Debug)]
pub(crate) struct VolumeLock {
    _file: Option<File>,
}

impl VolumeLock {
    /// Takes the lock of a volume; `verb` says what for: `served`, `created`.
    ///
    /// # Errors
    /// `Busy` if another process holds it: says which, and what it does. `Invalid` if the lock file is no file.
    pub fn take(state: &StateDir, name: &VolumeName, verb: &str) -> Result<VolumeLock> {
        state.make_dir(&state.volume_dir(name))?;
        let path = state.lock_file(name);
        let failed = |e: &io::Error| state.failed("lock", &path, e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = open_file(&options, &path).map_err(|e| refused(state, &path, &e))?;
        lock(state, name, &path, &mut file, FlockOperation::NonBlockingLockExclusive)?;
        let holder = format!("{verb} {}\n", std::process::id());
        let written = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
        written.map_err(|e| failed(&e))?;
        Ok(VolumeLock { _file: Some(file) })
    }

    /// Keeps others from changing a volume that is only read. Needs no right to write, and shares the lock with other
    /// readers. If there is no lock file yet, the locks of the devices must do.
    ///
    /// # Errors
    /// As [`VolumeLock::take`].
    pub fn share(state: &StateDir, name: &VolumeName) -> Result<VolumeLock> {
        let path = state.lock_file(name);
        let mut file = match open_file(OpenOptions::new().read(true), &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(VolumeLock { _file: None }),
            opened => opened.map_err(|e| refused(state, &path, &e))?,
        };
        lock(state, name, &path, &mut file, FlockOperation::NonBlockingLockShared)?;
        Ok(VolumeLock { _file: Some(file) })
    }
}

/// Opens a regular file. A symbolic link is refused: a user that may write to the directory could point it at any file.
fn open_file(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.clone().custom_flags(flags.bits() as i32).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::LOOP.into()) }
}

fn refused(state: &StateDir, path: &Path, error: &io::Error) -> Error {
    if error.raw_os_error() != Some(Errno::LOOP.raw_os_error()) {
        return state.failed("lock", path, error);
    }
    let problem = format!(
        "{} is a symbolic link or no file at all, and is not followed: see which user made it, and remove it",
        path.display()
    );
    Error::new(ErrorKind::Invalid, problem)
}

fn lock(
    state: &StateDir,
    name: &VolumeName,
    path: &Path,
    file: &mut File,
    operation: FlockOperation,
) -> Result<()> {
    match rustix::fs::flock(&*file, operation) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(held(name, file)),
        Err(error) => Err(state.failed("lock", path, &error.into())),
    }
}

fn held(name: &VolumeName, file: &mut File) -> Error {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
    let (verb, process) = match (read, text.trim().split_once(' ')) {
        (Ok(_), Some((verb, process))) => (verb.to_owned(), format!("process {process}")),
        _ => ("worked on".to_owned(), "another process".to_owned()),
    };
    let remedy =
        if verb == "served" { format!("braid stop {name}") } else { "wait until it has ended".to_owned() };
    Error::new(ErrorKind::Busy, format!("volume '{name}' is {verb} by {process} already: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_with_the_process_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let (state, name) = (StateDir::new(dir.path()).unwrap(), "vault".parse().unwrap());
        let lock = VolumeLock::take(&state, &name, "served").unwrap();
        let process = std::process::id().to_string();
        for error in [
            VolumeLock::take(&state, &name, "checked").unwrap_err(),
            VolumeLock::share(&state, &name).unwrap_err(),
        ] {
            let named = [&*process, "braid stop vault"].map(|name| error.to_string().contains(name));
            assert!(error.kind() == crate::ErrorKind::Busy && named == [true; 2], "{error}");
        }
        drop(lock);
        VolumeLock::take(&state, &name, "checked").unwrap();
    }

    #[test]
    fn readers_share_a_lock_and_exclude_writers() {
        let dir = tempfile::tempdir().unwrap();
        let (state, name) = (StateDir::new(dir.path()).unwrap(), "vault".parse().unwrap());
        drop(VolumeLock::share(&state, &name).unwrap());
        assert!(!state.lock_file(&name).exists(), "a reader made a file");
        drop(VolumeLock::take(&state, &name, "served").unwrap());
        let readers = [VolumeLock::share(&state, &name).unwrap(), VolumeLock::share(&state, &name).unwrap()];
        assert_eq!(VolumeLock::take(&state, &name, "served").unwrap_err().kind(), ErrorKind::Busy);
        drop(readers);
        VolumeLock::take(&state, &name, "served").unwrap();
    }
}
