//! Read-only looks at many paths, beside any other user of the devices, within a time limit.
//!
//! Each look runs in a worker thread, since the kernel may block a thread for ever that opens or reads a
//! broken device. A blocked thread is left behind.

use crate::device::place::Place;
use crate::device::remote::{is_address, sighting};
use braid_base::{Bytes, DeviceClass, SECTOR};
use braid_engine::{ErrorKind, Sighting};
use braid_runtime::{Buf, Device, Geometry};
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Result of a look at a path.
#[derive(Clone, Debug)]
pub(crate) enum Look {
    /// The path does not exist.
    Gone,
    /// This process may not read the device, with the reason.
    Denied(String),
    /// The device does not answer, or answers with an error: the reason.
    Unreadable(String),
    /// The path holds no device of a volume: the reason.
    Blank(String),
    /// A newer version wrote the device: the reason.
    Newer(String),
    /// A device of a volume, and the place of its bytes: a file and a loop device over the whole file are one
    /// device.
    Device(Box<Sighting>, Place),
}

impl Look {
    /// Returns the sighting, if a device of a volume was seen.
    pub fn sighting(&self) -> Option<&Sighting> {
        match self {
            Look::Device(sighting, _) => Some(sighting),
            _ => None,
        }
    }
}

/// Number of devices examined at the same time.
const SIDE_BY_SIDE: usize = 32;

/// Looks at all paths, in any order, and returns the results in the order of the paths. A path without an
/// answer within `limit` is unreadable.
pub(crate) fn look_at(paths: &[PathBuf], limit: Duration) -> Vec<Look> {
    let late = || Look::Unreadable(format!("does not answer within {} s", limit.as_secs()));
    let mut looks: Vec<Option<Look>> = paths.iter().map(|_| None).collect();
    let waiting: Vec<(usize, PathBuf)> = paths.iter().cloned().enumerate().rev().collect();
    let waiting = Arc::new(Mutex::new(waiting));
    let (found, finds) = mpsc::channel();
    for _ in 0..paths.len().min(SIDE_BY_SIDE) {
        let (waiting, found) = (waiting.clone(), found.clone());
        thread::spawn(move || {
            // No thread panics while it holds the list.
            let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
            while let Some((number, path)) = next() {
                if found.send((number, look(&path))).is_err() {
                    break;
                }
            }
        });
    }
    drop(found);
    let end = Instant::now() + limit;
    while let Ok((number, look)) = finds.recv_timeout(end.saturating_duration_since(Instant::now())) {
        looks[number] = Some(look);
    }
    // Late threads end when their device answers.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let named = |(path, look): (&PathBuf, Option<Look>)| match look.unwrap_or_else(late) {
        Look::Unreadable(why) if !why.contains(&*path.to_string_lossy()) => {
            Look::Unreadable(format!("{} {why}", path.display()))
        }
        look => look,
    };
    paths.iter().zip(looks).map(named).collect()
}

/// Runs work that may hang in the kernel; `None` if the work has not ended within `limit`. A late thread is
/// left behind.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    result.recv_timeout(limit).ok()
}

/// Looks at one path, without a time limit.
fn look(path: &Path) -> Look {
    if is_address(path) {
        return match (sighting(path), Place::of(path)) {
            (Ok(read), Ok(place)) => seen(read, place),
            (Err(error), _) | (_, Err(error)) => Look::Unreadable(error.to_string()),
        };
    }
    let shown = path.display();
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Look::Gone,
        Err(error) => return failed(path, &error),
        Ok(found) => found,
    };
    let is_block_device = found.file_type().is_block_device();
    if !is_block_device && !found.is_file() {
        return Look::Blank(format!("{shown} is neither a block device nor a regular file"));
    }
    let plain = match Plain::open(path) {
        Err(error) => return failed(path, &error),
        Ok(plain) => plain,
    };
    let place = match Place::of(path) {
        Err(error) => return failed(path, &error),
        Ok(place) => place,
    };
    seen(at_once(Sighting::read(&plain, &shown.to_string())), place)
}

/// Judges what was read from a device.
fn seen(read: braid_engine::Result<Sighting>, place: Place) -> Look {
    match read {
        Ok(sighting) => Look::Device(Box::new(sighting), place),
        Err(error) => match error.kind() {
            ErrorKind::Io => Look::Unreadable(error.to_string()),
            ErrorKind::Unsupported => Look::Newer(error.to_string()),
            _ => Look::Blank(error.to_string()),
        },
    }
}

fn failed(path: &Path, error: &io::Error) -> Look {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => Look::Denied(format!(
            "cannot open {shown}: {error}: its owner, root or a member of its group (often `disk`) may open it"
        )),
        // A directory in the path is a file now: the path does not exist.
        io::ErrorKind::NotADirectory => Look::Gone,
        _ => Look::Unreadable(format!("cannot open {shown}: {error}")),
    }
}

/// Returns the size of a file or block device, by a seek to the end.
fn size(mut file: &File) -> io::Result<Bytes> {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::End(0)).map(Bytes)
}

/// Runs a future that never waits: its device answers before the call returns.
pub(crate) fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        thread::yield_now();
    }
}

/// A file that is only read, by this thread.
pub(crate) struct Plain {
    file: File,
    geometry: Geometry,
}

impl Plain {
    /// Opens a file or a block device, beside any other user. May hang in the kernel.
    pub fn open(path: &Path) -> io::Result<Plain> {
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
        let size = size(&file)?.align_down(SECTOR);
        let (alignment, memory_alignment) = (SECTOR, Bytes(1));
        Ok(Plain { file, geometry: Geometry { size, class: DeviceClass::Hdd, alignment, memory_alignment } })
    }
}

impl Device for Plain {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.geometry.check(offset, into.len())?;
        let mut bytes = vec![0; into.len().as_usize()];
        self.file.read_exact_at(&mut bytes, offset.0)?;
        into.copy_from_slice(Bytes::ZERO, &bytes);
        Ok(())
    }

    async fn write(&self, _: Bytes, _: &Buf) -> io::Result<()> {
        Err(read_only())
    }

    async fn flush(&self) -> io::Result<()> {
        Err(read_only())
    }

    async fn discard(&self, _: Bytes, _: Bytes) -> io::Result<()> {
        Err(read_only())
    }
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this device was opened read-only for inspection")
}
