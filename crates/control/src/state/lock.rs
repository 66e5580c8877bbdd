//! Lock of a volume: only one process works on a volume at a time.
//!
//! The lock is on a file in the state directory. The kernel releases the lock when the process ends, however
//! the process ends. The file names the process that holds the lock, for the error message of the next
//! process.

use crate::state::state_dir::{StateDir, VolumeName, VolumeRecord};
use crate::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The lock of a volume, held until dropped.
#[derive(Debug)]
pub(crate) struct VolumeLock {
    file: Option<File>,
    /// Text of the file after the lock is released.
    leaves: String,
    is_shared: bool,
}

/// First word in the lock file of a daemon with an open volume. If the file says `serving` and nobody holds
/// the lock, the daemon did not close the volume.
const SERVING: &str = "serving";
/// First word in the lock file of a daemon that has closed the volume and waits for a device before it can
/// end.
const CLOSED: &str = "closed";

impl VolumeLock {
    /// Takes the lock of a volume. `verb` names the purpose: `served`, `created`.
    ///
    /// # Errors
    /// `Busy` if another process holds the lock: names the process and its verb. `Invalid` if the lock file
    /// is not a regular file.
    pub fn take(state: &StateDir, name: &VolumeName, verb: &str) -> Result<VolumeLock> {
        let path = state.lock_file(name);
        let failed = |e: &io::Error| state.failed("lock", &path, e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut tries = 0..TRIES;
        let mut file = loop {
            state.make_dir(&state.volume_dir(name))?;
            let is_last = tries.next().is_none();
            let mut file = match open_file(&options, &path) {
                // The directory was removed with the volume of this name: make it again.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !is_last => continue,
                opened => opened.map_err(|e| refused(state, &path, &e))?,
            };
            lock(state, name, &path, &mut file, FlockOperation::NonBlockingLockExclusive)?;
            if is_at(&file, &path) {
                break file;
            }
            if is_last {
                return Err(failed(&io::Error::other("the lock file is removed again and again")));
            }
        };
        // The text of a killed daemon stays until the volume is served again.
        let before = text_of(&mut file).map_err(|e| failed(&e))?;
        let leaves = if before.starts_with(SERVING) { before } else { String::new() };
        let holder = format!("{verb} {}\n", std::process::id());
        write(&mut file, &holder).map_err(|e| failed(&e))?;
        Ok(VolumeLock { file: Some(file), leaves, is_shared: false })
    }

    /// Notes that the volume is open, until [`VolumeLock::note_closed`].
    pub fn note_open(&mut self) {
        self.leaves = format!("{SERVING} {}\n", std::process::id());
        self.write(&self.leaves.clone());
    }

    /// Notes the devices that the process waits for before it can end, and whether the volume could be
    /// closed.
    pub fn note_waiting(&mut self, is_closed: bool, devices: &[String]) {
        let Some((first, others)) = devices.split_first() else { return };
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let word = if is_closed { CLOSED } else { SERVING };
        self.write(&format!("{word} {} {first}{more}\n", std::process::id()));
        tracing::error!("this process cannot end before {first}{more} answers, or is detached");
    }

    /// Notes a clean shutdown of the volume.
    pub fn note_closed(&mut self) {
        self.leaves.clear();
    }

    /// Writes the text, which is for people. An error is logged, and is no reason to fail.
    fn write(&mut self, text: &str) {
        if let Some(Err(error)) = self.file.as_mut().map(|file| write(file, text)) {
            tracing::warn!("the lock file cannot be written: {error}");
        }
    }

    /// Takes the lock of a volume that has a record, then reads the record. Changes that another process
    /// noted before it released the lock are seen.
    ///
    /// # Errors
    /// As [`VolumeLock::take`], and `Invalid` if there is no record.
    pub fn take_known(state: &StateDir, name: &VolumeName, verb: &str) -> Result<(VolumeLock, VolumeRecord)> {
        // An unknown name gets no directory.
        state.load(name)?;
        let lock = VolumeLock::take(state, name, verb)?;
        match state.load(name) {
            Ok(record) => Ok((lock, record)),
            Err(error) => {
                if !state.knows(name) {
                    // The volume was forgotten meanwhile, and taking the lock made its directory again:
                    // remove the directory.
                    state.remove(name)?;
                }
                Err(error)
            }
        }
    }

    /// Takes a shared lock for a command that only reads: no other process can change the volume. Needs no
    /// write permission. If there is no lock file yet, only the locks of the devices protect the volume.
    ///
    /// # Errors
    /// As [`VolumeLock::take`].
    pub fn share(state: &StateDir, name: &VolumeName) -> Result<VolumeLock> {
        let path = state.lock_file(name);
        let mut file = match open_file(OpenOptions::new().read(true), &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(VolumeLock { file: None, leaves: String::new(), is_shared: true });
            }
            opened => opened.map_err(|e| refused(state, &path, &e))?,
        };
        lock(state, name, &path, &mut file, FlockOperation::NonBlockingLockShared)?;
        // If the volume was forgotten meanwhile, another volume may have its name: lock again.
        match is_at(&file, &path) {
            true => Ok(VolumeLock { file: Some(file), leaves: String::new(), is_shared: true }),
            false => VolumeLock::share(state, name),
        }
    }
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        if !self.is_shared {
            self.write(&self.leaves.clone());
        }
    }
}

/// True if the last daemon ended without closing the volume. Call only if no process serves the volume.
pub(crate) fn ended_unclean(state: &StateDir, name: &VolumeName) -> bool {
    std::fs::read_to_string(state.lock_file(name)).is_ok_and(|text| text.starts_with(SERVING))
}

/// Attempts to take the lock if the file is removed while it is being locked.
const TRIES: u32 = 16;

/// True if the open file is the file at its path. A process that forgets a volume removes the lock file while
/// it holds the lock: a lock on a removed file excludes nobody.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(there)) = (file.metadata(), std::fs::symlink_metadata(path)) else { return false };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}

fn text_of(file: &mut File) -> io::Result<String> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    (&*file).take(LONGEST_TEXT).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Bytes that hold a verb, a number and the longest path.
const LONGEST_TEXT: u64 = 8192;

fn write(file: &mut File, text: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())
}

/// Opens a regular file. A symbolic link is refused: a user with write permission for the directory could
/// point the link at any file.
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
        "{} is a symbolic link or not a regular file, and is not followed: see which user made it, and \
         remove it",
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
    // A daemon that was just killed may still hold the lock: wait a little.
    braid_uring::lock_patiently(file, operation).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => held(name, file),
        _ => state.failed("lock", path, &error),
    })
}

/// Explains why a daemon that serves no guests any more cannot end, and how to end it. For commands that find
/// no daemon to talk to. `None` if no such process holds the lock.
pub(crate) fn waiting(state: &StateDir, name: &VolumeName) -> Option<String> {
    let mut file = open_file(OpenOptions::new().read(true), &state.lock_file(name)).ok()?;
    let text = text_of(&mut file).ok()?;
    let told = waits(name, &text)?;
    // Testing the lock takes the lock for a moment, and could refuse another process. So the text is read
    // first, and rules out nearly all tests.
    let process = text.split_whitespace().nth(1)?.parse().ok().and_then(Pid::from_raw)?;
    let is_there = rustix::process::test_kill_process(process) != Err(Errno::SRCH);
    let is_held =
        || rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    (is_there && is_held()).then_some(told)
}

/// Returns the process that serves a volume or is about to, by the lock file, and whether the volume is open.
/// Call only if a daemon listens: a daemon that was killed leaves the same text.
pub(crate) fn daemon(state: &StateDir, name: &VolumeName) -> Option<(Pid, bool)> {
    let mut file = open_file(OpenOptions::new().read(true), &state.lock_file(name)).ok()?;
    let text = text_of(&mut file).ok()?;
    let mut words = text.split_whitespace();
    let is_open = matches!(words.next()?, SERVING | CLOSED);
    Some((Pid::from_raw(words.next()?.parse().ok()?)?, is_open))
}

/// Returns the text of a lock file as a message, if the process with the lock waits for a device.
fn waits(name: &VolumeName, text: &str) -> Option<String> {
    let (word, rest) = text.trim().split_once(' ')?;
    let (process, device) = rest.split_once(' ')?;
    let (state, cost) = match word {
        CLOSED => ("shut it down cleanly", "which loses nothing"),
        SERVING => (
            "could not shut it down cleanly",
            "which may lose writes of guests after their last successful flush; before the volume is served \
             again, see that the device answers, or detach it: it may still carry out old requests",
        ),
        _ => return None,
    };
    Some(format!(
        "process {process} served volume '{name}', {state}, and cannot end: {device} does not answer; let \
         the device answer, or detach it, so that the kernel ends its requests (a file on a network or \
         FUSE: umount -f); if the process stays then: kill -9 {process}, {cost}"
    ))
}

fn held(name: &VolumeName, file: &mut File) -> Error {
    let text = text_of(file).unwrap_or_default();
    if let Some(waits) = waits(name, &text) {
        return Error::new(ErrorKind::Busy, waits);
    }
    let (verb, process) = match text.trim().split_once(' ') {
        Some((SERVING, process)) => ("served".to_owned(), format!("process {process}")),
        Some((verb, process)) => (verb.to_owned(), format!("process {process}")),
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

    /// Regression: `serve` in the same instant as `kill -9` sometimes failed with "served already".
    #[test]
    fn lock_is_available_right_after_the_holder_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let (state, name) = (StateDir::new(dir.path()).unwrap(), "vault".parse().unwrap());
        drop(VolumeLock::take(&state, &name, "served").unwrap());
        let path = state.lock_file(&name);
        for _ in 0..20 {
            let mut holder = std::process::Command::new("flock")
                .args(["--no-fork".as_ref(), path.as_os_str(), "sleep".as_ref(), "1000".as_ref()])
                .spawn()
                .unwrap();
            let file = File::open(&path).unwrap();
            while rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Ok(()) {
                rustix::fs::flock(&file, FlockOperation::Unlock).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            drop(file);
            holder.kill().unwrap();
            VolumeLock::take(&state, &name, "served").unwrap();
            holder.wait().unwrap();
        }
    }

    /// Regression: `status` reported a volume with a killed daemon like a volume with a stopped daemon.
    #[test]
    fn unclean_end_is_reported_until_the_volume_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (state, name) = (StateDir::new(dir.path()).unwrap(), "vault".parse().unwrap());
        let mut lock = VolumeLock::take(&state, &name, "served").unwrap();
        lock.note_open();
        assert!(VolumeLock::take(&state, &name, "checked").unwrap_err().to_string().contains("served"));
        drop(lock);
        assert!(ended_unclean(&state, &name));
        // A daemon that is refused, and another command.
        drop(VolumeLock::take(&state, &name, "served").unwrap());
        drop(VolumeLock::take(&state, &name, "checked").unwrap());
        assert!(ended_unclean(&state, &name));
        let mut lock = VolumeLock::take(&state, &name, "served").unwrap();
        lock.note_open();
        lock.note_closed();
        drop(lock);
        assert!(!ended_unclean(&state, &name));
    }

    /// Regression: a daemon that waited for a device was "served already: braid stop" to one command, and
    /// "not served: braid serve" to the other.
    #[test]
    fn lock_names_the_hanging_device_and_the_kill_command() {
        let dir = tempfile::tempdir().unwrap();
        let (state, name) = (StateDir::new(dir.path()).unwrap(), "vault".parse().unwrap());
        let mut lock = VolumeLock::take(&state, &name, "served").unwrap();
        lock.note_open();
        assert_eq!(waiting(&state, &name), None, "it serves");
        let device = format!("/{}", "long name/".repeat(400));
        for (is_closed, word) in [(false, "last successful flush"), (true, "loses nothing")] {
            lock.note_waiting(is_closed, &[device.clone(), "/b".to_owned()]);
            let told = waiting(&state, &name).unwrap();
            let kill = format!("kill -9 {},", std::process::id());
            for part in [&*device, "and 1 more", &kill, word] {
                assert!(told.contains(part), "{part}: {told}");
            }
            let refused = VolumeLock::take(&state, &name, "checked").unwrap_err();
            assert_eq!((refused.kind(), refused.to_string()), (ErrorKind::Busy, told));
        }
        drop(lock);
        assert_eq!(waiting(&state, &name), None, "it has ended");
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
