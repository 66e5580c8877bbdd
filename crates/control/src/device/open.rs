//! Devices as a volume's daemon opens them. Real devices use direct I/O. Emulated devices keep their bytes in
//! a file or in memory, and take the timing from a model. Remote devices are NBD exports and RBD
//! images.
//!
//! A flush of an emulated device takes the model's time, and reaches only the page cache of this machine:
//! flushed writes survive the death of the daemon, but not a power cut. Waiting for the real disk would give
//! the real disk's timing.

use crate::device::log::DeviceLog;
use crate::device::place::Place;
use crate::device::remote::{
    Access as RemoteAccess, LATE_REQUESTS, Remote, connect, is_address, is_image, make,
};
use crate::device::served::ServedLog;
use crate::device::spec::{DeviceSpec, Storage};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, Nanos, Op};
use braid_emulated::{Emulated, Lateness};
use braid_engine::identify;
use braid_format::superblock::Header;
use braid_model::Spec;
use braid_runtime::{Buf, Device, Geometry, Runtime};
use braid_uring::{Access, FileDevice, Flush, MemoryDevice, Ring};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

/// An opened device of a volume. Cheap to clone: a handle. Errors are logged, the first at once.
#[derive(Clone)]
pub(crate) struct OpenDevice {
    backing: Backing,
    log: Rc<DeviceLog>,
    served: Rc<ServedLog<Ring>>,
}

/// Storage of the bytes, with its own timing or a model's.
#[derive(Clone)]
enum Backing {
    File(Rc<FileDevice>),
    EmulatedFile(Rc<Emulated<Ring, FileDevice>>),
    Memory(Rc<MemoryDevice>),
    EmulatedMemory(Rc<Emulated<Ring, MemoryDevice>>),
    Remote(Rc<Remote>),
}

impl OpenDevice {
    fn new(ring: &Ring, storage: &Storage, backing: Backing) -> OpenDevice {
        let log = Rc::new(DeviceLog::new(ring, storage.name()));
        OpenDevice { backing, log, served: Rc::new(ServedLog::new(ring.clone())) }
    }

    /// Returns the log of served requests, which is empty unless started.
    pub fn served(&self) -> &ServedLog<Ring> {
        &self.served
    }

    /// True if the bytes end with this process.
    pub fn is_memory(&self) -> bool {
        matches!(self.backing, Backing::Memory(_) | Backing::EmulatedMemory(_))
    }

    /// True if requests of an earlier connection may be carried out late.
    fn has_late_requests(&self) -> bool {
        matches!(&self.backing, Backing::Remote(device) if device.has_late_requests())
    }

    /// Ends the connection of a remote device that the engine no longer uses. Returns false if the server
    /// replied to a request with an error: a new connection would not help.
    pub fn give_up_connection(&self) -> bool {
        match &self.backing {
            Backing::Remote(device) => device.give_up(),
            _ => false,
        }
    }

    /// True if a model gives the timing, and flushes therefore reach only the page cache.
    pub fn is_emulated(&self) -> bool {
        matches!(self.backing, Backing::EmulatedFile(_) | Backing::EmulatedMemory(_))
    }

    /// Returns the lateness of an emulated device against its model.
    pub fn lateness(&self) -> Option<Lateness> {
        match &self.backing {
            Backing::File(_) | Backing::Memory(_) | Backing::Remote(_) => None,
            Backing::EmulatedFile(device) => Some(device.lateness()),
            Backing::EmulatedMemory(device) => Some(device.lateness()),
        }
    }

    /// Opens a device that was found or just specified. `seed` makes models of one kind differ.
    pub async fn open(
        ring: &Ring,
        storage: &Storage,
        class: DeviceClass,
        model: Option<&Spec>,
        size: Option<Bytes>,
        seed: u64,
    ) -> Result<OpenDevice> {
        let backing = Backing::open(ring, storage, class, model, size, seed).await?;
        let opened = OpenDevice::new(ring, storage, backing);
        wait_for_late_requests(ring, [&opened]).await;
        Ok(opened)
    }

    /// Opens a device of an existing volume, to be used after [`wait_for_late_requests`]. A file on a
    /// read-only file system, or a write-protected disk, is opened read-only: the volume does without the
    /// device if it can. With `takes_over`, another host that uses a remote device is shut out where the
    /// device allows that.
    pub async fn open_member(
        ring: &Ring,
        storage: &Storage,
        class: DeviceClass,
        model: Option<&Spec>,
        seed: u64,
        takes_over: bool,
    ) -> Result<OpenDevice> {
        if let Storage::Path(path) = storage
            && takes_over
            && is_address(path)
        {
            let device = connect(ring, path, class, RemoteAccess::TakeOver).await?;
            return Ok(OpenDevice::new(ring, storage, Backing::Remote(Rc::new(device))));
        }
        match (Backing::open(ring, storage, class, model, None, seed).await, storage) {
            (Err(error), Storage::Path(path)) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                tracing::error!("{error}");
                OpenDevice::open_to_read(ring, path, class).await
            }
            (backing, _) => Ok(OpenDevice::new(ring, storage, backing?)),
        }
    }

    /// Opens a device with direct I/O; fails if the file system has no direct I/O.
    pub fn open_direct(ring: &Ring, path: &Path, class: DeviceClass) -> Result<OpenDevice> {
        let device = FileDevice::open(ring, path, class, Access::Direct)?;
        Ok(OpenDevice::new(ring, &Storage::Path(path.to_owned()), Backing::File(Rc::new(device))))
    }

    /// Opens a device read-only: without emulated timing, and without write permission.
    pub async fn open_to_read(ring: &Ring, path: &Path, class: DeviceClass) -> Result<OpenDevice> {
        let backing = match is_address(path) {
            true => Backing::Remote(Rc::new(connect(ring, path, class, RemoteAccess::ReadOnly).await?)),
            false => Backing::File(Rc::new(open_read_only(ring, path, class)?)),
        };
        Ok(OpenDevice::new(ring, &Storage::Path(path.to_owned()), backing))
    }
}

/// Waits until the servers of remote devices have carried out the requests of earlier connections: a daemon
/// that was killed, or a connection that was lost, may have left such requests.
pub(crate) async fn wait_for_late_requests(ring: &Ring, devices: impl IntoIterator<Item = &OpenDevice>) {
    if devices.into_iter().any(OpenDevice::has_late_requests) {
        ring.sleep(LATE_REQUESTS).await;
    }
}

impl Backing {
    async fn open(
        ring: &Ring,
        storage: &Storage,
        class: DeviceClass,
        model: Option<&Spec>,
        size: Option<Bytes>,
        seed: u64,
    ) -> io::Result<Backing> {
        let emulation = |size| model.map(|model| model.build(size, seed));
        Ok(match storage {
            Storage::Memory => {
                let device = MemoryDevice::new(size.unwrap_or_default(), class)?;
                match emulation(device.geometry().size) {
                    None => Backing::Memory(Rc::new(device)),
                    Some(model) => {
                        Backing::EmulatedMemory(Rc::new(Emulated::new(ring.clone(), device, model)))
                    }
                }
            }
            Storage::Path(path) if is_address(path) => {
                Backing::Remote(Rc::new(connect(ring, path, class, RemoteAccess::ReadWrite).await?))
            }
            Storage::Path(path) if model.is_some() => {
                let device =
                    FileDevice::open(ring, path, class, Access::Cached)?.with_flush(Flush::ToPageCache);
                let model = emulation(device.geometry().size).expect("there is a model");
                Backing::EmulatedFile(Rc::new(Emulated::new(ring.clone(), device, model)))
            }
            Storage::Path(path) => Backing::File(Rc::new(open_real(ring, path, class)?)),
        })
    }
}

/// Opens a file or disk with direct I/O, or through the page cache if the file system has no direct I/O.
/// Flushes reach the disk either way.
fn open_real(ring: &Ring, path: &Path, class: DeviceClass) -> io::Result<FileDevice> {
    match FileDevice::open(ring, path, class, Access::Direct) {
        Err(error) if needs_cache(&error) => {
            tracing::warn!("{error}; falling back to buffered I/O: slower, equally safe");
            FileDevice::open(ring, path, class, Access::Cached)
        }
        result => result,
    }
}

/// Opens read-only, as [`open_real`]. Prefers direct I/O: the page cache may be stale if another host writes.
fn open_read_only(ring: &Ring, path: &Path, class: DeviceClass) -> io::Result<FileDevice> {
    match FileDevice::open_read_only(ring, path, class, Access::Direct) {
        Err(error) if needs_cache(&error) => FileDevice::open_read_only(ring, path, class, Access::Cached),
        result => result,
    }
}

fn needs_cache(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.to_string().contains("no direct I/O")
}

/// Reads the superblock of the device at `path`, and closes the device again.
pub(crate) async fn look(ring: &Ring, path: &Path) -> Result<Header> {
    // The class does not matter for reading; the superblock holds the real class.
    let device = OpenDevice::open_to_read(ring, path, DeviceClass::Ssd).await?;
    Ok(identify(ring, Rc::new(device), &path.display().to_string()).await?)
}

/// Result of [`prepare`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prepared {
    /// The path existed before.
    Found,
    /// The path did not exist, and is now a sparse file.
    Made,
}

/// Makes a sparse file for a device with a size that does not exist yet. An empty file gets the size.
///
/// # Errors
/// If the file does not exist and no size was given, or if it exists with another size.
pub(crate) fn prepare(spec: &DeviceSpec) -> Result<Prepared> {
    let Storage::Path(path) = &spec.storage else { return Ok(Prepared::Found) };
    if is_address(path) {
        let made = match spec.size.filter(|_| is_image(path)) {
            Some(size) => make(path, size)?,
            None => false,
        };
        return Ok(if made { Prepared::Made } else { Prepared::Found });
    }
    let (class, shown) = (spec.class, path.display());
    let invalid = |problem: String| Err(Error::new(ErrorKind::Invalid, problem));
    match (std::fs::metadata(path), spec.size) {
        (Err(error), Some(size)) if error.kind() == io::ErrorKind::NotFound => {
            make_file(path, size).map_err(|e| Error::io(format_args!("cannot make {shown}"), &e))?;
            Ok(Prepared::Made)
        }
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => invalid(format!(
            "{shown} does not exist: check the path, or give a size to create a file, as in --{class} \
             {shown},size=10GiB"
        )),
        (Err(error), _) => Err(Error::io(format_args!("cannot look at {shown}"), &error)),
        (Ok(_), None) => Ok(Prepared::Found),
        (Ok(found), Some(size)) if found.is_file() && found.len() == 0 => {
            let file = OpenOptions::new().write(true).open(path);
            let grown = file.and_then(|file| file.set_len(size.0));
            grown.map_err(|e| Error::io(format_args!("cannot give {shown} its size"), &e))?;
            Ok(Prepared::Found)
        }
        (Ok(found), Some(size)) if found.is_file() && found.len() != size.0 => invalid(format!(
            "{shown} exists with {}, and size={size} was given: leave size= out, or use another path",
            Bytes(found.len())
        )),
        (Ok(found), Some(_)) if found.file_type().is_block_device() => {
            invalid(format!("{shown} is a block device, whose size is fixed: leave size= out"))
        }
        (Ok(_), Some(_)) => Ok(Prepared::Found),
    }
}

/// Makes a file for the owner alone: the file will hold the volume's content.
fn make_file(path: &Path, size: Bytes) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(size.0).inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// Refuses one device under two paths, also by a partition, a loop device or a link. Otherwise the device's
/// lock would fail with "in use by another process".
///
/// # Errors
/// `Invalid`: names both paths.
pub(crate) fn refuse_duplicates<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<()> {
    let mut seen: Vec<(Place, &Path)> = Vec::new();
    for path in paths {
        let Ok(place) = Place::of(path) else { continue };
        if let Some((_, other)) = seen.iter().find(|(known, _)| known.overlaps(&place)) {
            let problem = format!(
                "{} and {} are the same device, or one lies on the other: give each once",
                other.display(),
                path.display()
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        seen.push((place, path));
    }
    Ok(())
}

impl Device for OpenDevice {
    fn geometry(&self) -> Geometry {
        match &self.backing {
            Backing::File(device) => device.geometry(),
            Backing::EmulatedFile(device) => device.geometry(),
            Backing::Memory(device) => device.geometry(),
            Backing::EmulatedMemory(device) => device.geometry(),
            Backing::Remote(device) => device.geometry(),
        }
    }

    fn is_shared(&self) -> bool {
        matches!(self.backing, Backing::Remote(_))
    }

    fn repair_time(&self) -> Nanos {
        match &self.backing {
            Backing::Remote(device) => device.repair_time(),
            _ => Nanos::ZERO,
        }
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        let noted = self.served.begins(Op::Read, offset, into.len());
        let read = match &self.backing {
            Backing::File(device) => device.read(offset, into).await,
            Backing::EmulatedFile(device) => device.read(offset, into).await,
            Backing::Memory(device) => device.read(offset, into).await,
            Backing::EmulatedMemory(device) => device.read(offset, into).await,
            Backing::Remote(device) => device.read(offset, into).await,
        };
        self.served.ends(noted, read.is_ok());
        read.inspect_err(|error| self.log.request_failed(error))
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        let noted = self.served.begins(Op::Write, offset, from.len());
        let written = match &self.backing {
            Backing::File(device) => device.write(offset, from).await,
            Backing::EmulatedFile(device) => device.write(offset, from).await,
            Backing::Memory(device) => device.write(offset, from).await,
            Backing::EmulatedMemory(device) => device.write(offset, from).await,
            Backing::Remote(device) => device.write(offset, from).await,
        };
        self.served.ends(noted, written.is_ok());
        written.inspect_err(|error| self.log.request_failed(error))
    }

    async fn flush(&self) -> io::Result<()> {
        let noted = self.served.begins(Op::Flush, Bytes::ZERO, Bytes::ZERO);
        let flushed = match &self.backing {
            Backing::File(device) => device.flush().await,
            Backing::EmulatedFile(device) => device.flush().await,
            Backing::Memory(device) => device.flush().await,
            Backing::EmulatedMemory(device) => device.flush().await,
            Backing::Remote(device) => device.flush().await,
        };
        self.served.ends(noted, flushed.is_ok());
        flushed.inspect_err(|error| self.log.flush_failed(error))
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        let discarded = match &self.backing {
            Backing::File(device) => device.discard(offset, len).await,
            Backing::EmulatedFile(device) => device.discard(offset, len).await,
            Backing::Memory(device) => device.discard(offset, len).await,
            Backing::EmulatedMemory(device) => device.discard(offset, len).await,
            Backing::Remote(device) => device.discard(offset, len).await,
        };
        discarded.inspect_err(|error| self.log.request_failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;

    fn spec(path: &Path, size: Option<Bytes>) -> DeviceSpec {
        DeviceSpec {
            class: DeviceClass::Hdd,
            storage: Storage::Path(path.into()),
            size,
            model: None,
            layout: None,
        }
    }

    #[test]
    fn missing_file_is_created_only_with_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        let error = prepare(&spec(&path, None)).unwrap_err().to_string();
        assert!(error.contains("disk.img") && error.contains("size=10GiB"), "{error}");
        assert_eq!(prepare(&spec(&path, Some(MIB * 8))), Ok(Prepared::Made));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
        assert_eq!(prepare(&spec(&path, Some(MIB * 8))), Ok(Prepared::Found));
        let error = prepare(&spec(&path, Some(MIB * 9))).unwrap_err().to_string();
        assert!(error.contains("8 MiB") && error.contains("9 MiB"), "{error}");
    }

    #[test]
    fn one_device_under_two_names_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&path, "x").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(refuse_duplicates([path.as_path()].into_iter()).is_ok());
        let error = refuse_duplicates([path.as_path(), &link].into_iter()).unwrap_err();
        let names = [&path, &link].map(|path| error.to_string().contains(&*path.to_string_lossy()));
        assert!(error.kind() == ErrorKind::Invalid && names == [true; 2], "{error}");
    }
}
