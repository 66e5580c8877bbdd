//! One process works on a volume: a lock on a file in the state directory, which the kernel gives back when the process
//! ends, however it ends. The file says who holds it, for the message to the next one.

use crate::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;

/// The lock of a volume, held until dropped.
#[derive(Debug)]
pub(crate) struct VolumeLock {
    _file: File,
}

impl VolumeLock {
    /// Takes the lock of a volume; `verb` says what for: `served`, `checked`.
    ///
    /// # Errors
    /// `Busy` where another process holds it: says which, and what it does.
    pub fn take(state: &StateDir, name: &VolumeName, verb: &str) -> Result<VolumeLock> {
        state.make_dir(&state.volume_dir(name))?;
        let path = state.lock_file(name);
        let failed = |e: &std::io::Error| state.failed("lock", &path, e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(|e| failed(&e))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(held(name, &mut file)),
            Err(error) => return Err(failed(&error.into())),
        }
        let holder = format!("{verb} {}\n", std::process::id());
        let written = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
        written.map_err(|e| failed(&e))?;
        Ok(VolumeLock { _file: file })
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
    fn the_second_is_told_who_was_first() {
        let dir = tempfile::tempdir().unwrap();
        let (state, name) = (StateDir::new(dir.path()).unwrap(), "vault".parse().unwrap());
        let lock = VolumeLock::take(&state, &name, "served").unwrap();
        let error = VolumeLock::take(&state, &name, "checked").unwrap_err().to_string();
        let process = std::process::id();
        assert!(error.contains(&format!("is served by process {process}")), "{error}");
        assert!(error.contains("braid stop vault"), "{error}");
        drop(lock);
        VolumeLock::take(&state, &name, "checked").unwrap();
    }
}
