//! One process works on a volume: a lock on a file in the state directory, which the kernel gives back when
//! the process ends, however it ends. The file names the process that holds it, for the error message of the
//! next one.

use crate::volume::state_dir::{StateDir, VolumeName, VolumeRecord};
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
    /// What the file says once the lock is given back.
    leaves: String,
    is_shared: bool,
}

/// The word of a daemon that has the volume open. If the file says this and nobody has the lock, the daemon
/// did not close the volume.
const SERVING: &str = "serving";
/// The word of a daemon that has closed the volume, and waits for a device before it can end.
const CLOSED: &str = "closed";

impl VolumeLock {
    /// Takes the lock of a volume; `verb` says what for: `served`, `created`.
    ///
    /// # Errors
    /// `Busy` if another process holds it: says which, and what it does. `Invalid` if the lock file is no
    /// file.
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
                // The directory went with the volume that had the name.
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
        // What a killed daemon has left is told until the volume is served again.
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

    /// Notes which devices the process waits for before it can end; whether it could close the volume.
    pub fn note_waiting(&mut self, is_closed: bool, devices: &[String]) {
        let Some((first, others)) = devices.split_first() else { return };
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let word = if is_closed { CLOSED } else { SERVING };
        self.write(&format!("{word} {} {first}{more}\n", std::process::id()));
        tracing::error!("this process cannot end before {first}{more} answers, or is taken away");
    }

    /// Notes that the volume was closed as it should be.
    pub fn note_closed(&mut self) {
        self.leaves.clear();
    }

    /// The text is for people: that it cannot be written is no reason to fail.
    fn write(&mut self, text: &str) {
        if let Some(Err(error)) = self.file.as_mut().map(|file| write(file, text)) {
            tracing::warn!("the lock file cannot be written: {error}");
        }
    }

    /// Takes the lock of a volume that is known here, and reads its record then: what another process noted
    /// before it ended counts.
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
                    // The volume was forgotten meanwhile: its directory, which the lock has made again, goes,
                    // too.
                    state.remove(name)?;
                }
                Err(error)
            }
        }
    }

    /// Keeps others from changing a volume that is only read. Needs no right to write, and shares the lock
    /// with other readers. If there is no lock file yet, the locks of the devices must do.
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
        // If the volume was forgotten meanwhile, another one may have its name.
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

/// Whether the last daemon of a volume that nobody serves ended without closing the volume.
pub(crate) fn ended_unclean(state: &StateDir, name: &VolumeName) -> bool {
    std::fs::read_to_string(state.lock_file(name)).is_ok_and(|text| text.starts_with(SERVING))
}

/// How often a lock is taken anew whose file was removed while it was being taken.
const TRIES: u32 = 16;

/// Whether the file is the one at its path. A process that forgets a volume removes its lock file while it
/// holds the lock: a lock on a file that has
/// been removed excludes nobody.
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

/// More than a verb, a number and the longest path.
const LONGEST_TEXT: u64 = 8192;

fn write(file: &mut File, text: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())
}

/// Opens a regular file. A symbolic link is refused: a user that may write to the directory could point it at
/// any file.
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
    // A daemon that was just killed may have it still.
    braid_uring::lock_patiently(file, operation).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => held(name, file),
        _ => state.failed("lock", path, &error),
    })
}

/// What keeps a daemon from ending that serves no guests any more, and what ends it: for the commands that
/// find no daemon to talk to. None if no such process has the lock.
pub fn waiting(state: &StateDir, name: &VolumeName) -> Option<String> {
    let mut file = open_file(OpenOptions::new().read(true), &state.lock_file(name)).ok()?;
    let text = text_of(&mut file).ok()?;
    let told = waits(name, &text)?;
    // A look at the lock could refuse a process that takes it now: the text alone rules nearly all looks out.
    let process = text.split_whitespace().nth(1)?.parse().ok().and_then(Pid::from_raw)?;
    let is_there = rustix::process::test_kill_process(process) != Err(Errno::SRCH);
    let is_held =
        || rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    (is_there && is_held()).then_some(told)
}

/// The process that serves a volume or is about to, by its lock file, and whether it has opened the volume.
/// Only for a volume with a daemon that listens: a daemon that was killed leaves the same text.
pub(crate) fn daemon(state: &StateDir, name: &VolumeName) -> Option<(Pid, bool)> {
    let mut file = open_file(OpenOptions::new().read(true), &state.lock_file(name)).ok()?;
    let text = text_of(&mut file).ok()?;
    let mut words = text.split_whitespace();
    let is_open = matches!(words.next()?, SERVING | CLOSED);
    Some((Pid::from_raw(words.next()?.parse().ok()?)?, is_open))
}

/// The text of a lock file as a message, if the process that has the lock waits for a device.
fn waits(name: &VolumeName, text: &str) -> Option<String> {
    let (word, rest) = text.trim().split_once(' ')?;
    let (process, device) = rest.split_once(' ')?;
    let (state, cost) = match word {
        CLOSED => ("closed it", "which loses nothing"),
        SERVING => (
            "could not close it",
            "which may lose what guests wrote after their last successful flush; before the volume is served \
             again, see that the device answers, or take it away: it may still carry out old requests",
        ),
        _ => return None,
    };
    Some(format!(
        "process {process} served volume '{name}', {state}, and cannot end: {device} does not answer; let the \
         device answer, or take it away, so that the kernel ends its requests (a file on a network or FUSE: umount \
         -f); if the process stays then: kill -9 {process}, {cost}"
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

    /// `serve` in the same instant as `kill -9` said "served already" now and then.
    #[test]
    fn a_process_that_was_just_killed_keeps_nobody_out() {
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

    /// `status` said of a volume whose daemon was killed what it says of one that was stopped.
    #[test]
    fn an_end_without_a_closed_volume_is_told_until_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (state, name) = (StateDir::new(dir.path()).unwrap(), "vault".parse().unwrap());
        let mut lock = VolumeLock::take(&state, &name, "served").unwrap();
        lock.note_open();
        assert!(VolumeLock::take(&state, &name, "checked").unwrap_err().to_string().contains("served"));
        drop(lock);
        assert!(ended_unclean(&state, &name));
        // One that is refused, and another command.
        drop(VolumeLock::take(&state, &name, "served").unwrap());
        drop(VolumeLock::take(&state, &name, "checked").unwrap());
        assert!(ended_unclean(&state, &name));
        let mut lock = VolumeLock::take(&state, &name, "served").unwrap();
        lock.note_open();
        lock.note_closed();
        drop(lock);
        assert!(!ended_unclean(&state, &name));
    }

    /// A daemon that waited for a device was "served already: braid stop" to one command, and "not served:
    /// braid serve" to the other.
    #[test]
    fn a_daemon_that_waits_for_a_device_names_it_and_the_way_out() {
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
