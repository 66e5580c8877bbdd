//! Devices as a volume's daemon opens them: real ones by direct I/O; emulated ones, whose bytes lie in a file
//! or in memory and whose timing is a model's.
//!
//! An emulated device's flush takes the model's time but goes no further than this machine's page cache: what
//! was flushed survives the death of the daemon, not a power cut. Waiting for the real disk as well would
//! make the timing that of the real disk.

use crate::device::log::DeviceLog;
use crate::device::place::Place;
use crate::device::served::ServedLog;
use crate::device::spec::{DeviceSpec, Storage};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, Op};
use braid_emulated::{Emulated, Lateness};
use braid_engine::identify;
use braid_format::superblock::Header;
use braid_model::Spec;
use braid_runtime::{Buf, Device, Geometry};
use braid_uring::{Access, FileDevice, Flush, MemoryDevice, Ring};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

/// A device of a volume, open. Cheap to clone: a handle. Its errors are logged, the first at once.
#[derive(Clone)]
pub(crate) struct OpenDevice {
    backing: Backing,
    log: Rc<DeviceLog>,
    served: Rc<ServedLog<Ring>>,
}

/// What stores the bytes, with a timing of its own or a model's.
#[derive(Clone)]
enum Backing {
    File(Rc<FileDevice>),
    EmulatedFile(Rc<Emulated<Ring, FileDevice>>),
    Memory(Rc<MemoryDevice>),
    EmulatedMemory(Rc<Emulated<Ring, MemoryDevice>>),
}

impl OpenDevice {
    fn new(ring: &Ring, storage: &Storage, backing: Backing) -> OpenDevice {
        let log = Rc::new(DeviceLog::new(ring, storage.name()));
        OpenDevice { backing, log, served: Rc::new(ServedLog::new(ring.clone())) }
    }

    /// What it has served, where that is noted.
    pub fn served(&self) -> &ServedLog<Ring> {
        &self.served
    }

    /// Whether its bytes are gone with this process.
    pub fn is_memory(&self) -> bool {
        matches!(self.backing, Backing::Memory(_) | Backing::EmulatedMemory(_))
    }

    /// Whether a model says how long it takes, and so its flushes go no further than the page cache.
    pub fn is_emulated(&self) -> bool {
        matches!(self.backing, Backing::EmulatedFile(_) | Backing::EmulatedMemory(_))
    }

    /// How late an emulated device is behind its model.
    pub fn lateness(&self) -> Option<Lateness> {
        match &self.backing {
            Backing::File(_) | Backing::Memory(_) => None,
            Backing::EmulatedFile(device) => Some(device.lateness()),
            Backing::EmulatedMemory(device) => Some(device.lateness()),
        }
    }

    /// Opens a device that was found or just specified. `seed` makes models of one kind differ.
    pub fn open(
        ring: &Ring,
        storage: &Storage,
        class: DeviceClass,
        model: Option<&Spec>,
        size: Option<Bytes>,
        seed: u64,
    ) -> Result<OpenDevice> {
        Ok(OpenDevice::new(ring, storage, Backing::open(ring, storage, class, (model, size, seed))?))
    }

    /// Opens a device of a volume that there is. A file on a read-only file system, or a disk that is
    /// protected against writing, is opened to be read: the volume does without that device if it can.
    pub fn open_member(
        ring: &Ring,
        storage: &Storage,
        class: DeviceClass,
        model: Option<&Spec>,
        seed: u64,
    ) -> Result<OpenDevice> {
        match (Backing::open(ring, storage, class, (model, None, seed)), storage) {
            (Err(error), Storage::Path(path)) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                tracing::error!("{error}");
                OpenDevice::open_to_read(ring, path, class)
            }
            (backing, _) => Ok(OpenDevice::new(ring, storage, backing?)),
        }
    }

    /// Opens a device past the page cache, or not at all.
    pub fn open_direct(ring: &Ring, path: &Path, class: DeviceClass) -> Result<OpenDevice> {
        let device = FileDevice::open(ring, path, class, Access::Direct)?;
        Ok(OpenDevice::new(ring, &Storage::Path(path.to_owned()), Backing::File(Rc::new(device))))
    }

    /// Opens a device to be read and nothing else, whatever it emulates: without timing, and without the
    /// right to write it.
    pub fn open_to_read(ring: &Ring, path: &Path, class: DeviceClass) -> Result<OpenDevice> {
        // Of what another host writes, the page cache has an older state.
        let device = match FileDevice::open_read_only(ring, path, class, Access::Direct) {
            Err(error) if needs_cache(&error) => {
                FileDevice::open_read_only(ring, path, class, Access::Cached)
            }
            result => result,
        }?;
        Ok(OpenDevice::new(ring, &Storage::Path(path.to_owned()), Backing::File(Rc::new(device))))
    }
}

impl Backing {
    fn open(
        ring: &Ring,
        storage: &Storage,
        class: DeviceClass,
        (model, size, seed): (Option<&Spec>, Option<Bytes>, u64),
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

/// Past the page cache, or through it where the file system has no direct I/O; flushes reach the disk either
/// way.
fn open_real(ring: &Ring, path: &Path, class: DeviceClass) -> io::Result<FileDevice> {
    match FileDevice::open(ring, path, class, Access::Direct) {
        Err(error) if needs_cache(&error) => {
            tracing::warn!("{error}; falling back to buffered I/O: slower, equally safe");
            FileDevice::open(ring, path, class, Access::Cached)
        }
        result => result,
    }
}

/// As [`open_real`], to be read: of what another host writes, the page cache has an older state.
fn open_read_only(ring: &Ring, path: &Path, class: DeviceClass) -> io::Result<FileDevice> {
    match FileDevice::open_read_only(ring, path, class, Access::Direct) {
        Err(error) if needs_cache(&error) => FileDevice::open_read_only(ring, path, class, Access::Cached),
        result => result,
    }
}

fn needs_cache(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.to_string().contains("no direct I/O")
}

/// Reads the superblock of the device at `path`, and closes it again.
pub(crate) async fn look(ring: &Ring, path: &Path) -> Result<Header> {
    // The class does not matter for reading; it is the superblock that tells it.
    let device = open_read_only(ring, path, DeviceClass::Ssd)?;
    Ok(identify(ring, Rc::new(device), &path.display().to_string()).await?)
}

/// What [`prepare`] did to a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prepared {
    /// It is as it was.
    Found,
    /// It was not there, and is a sparse file now.
    Made,
}

/// Makes the file of a device that has a size and does not exist yet, sparse.
///
/// # Errors
/// If it does not exist and no size was given, and where it exists with another size.
pub(crate) fn prepare(spec: &DeviceSpec) -> Result<Prepared> {
    let Storage::Path(path) = &spec.storage else { return Ok(Prepared::Found) };
    let (class, shown) = (spec.class, path.display());
    let invalid = |problem: String| Err(Error::new(ErrorKind::Invalid, problem));
    match (std::fs::metadata(path), spec.size) {
        (Err(error), Some(size)) if error.kind() == io::ErrorKind::NotFound => {
            make_file(path, size).map_err(|e| Error::io(format_args!("cannot make {shown}"), &e))?;
            Ok(Prepared::Made)
        }
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => invalid(format!(
            "{shown} does not exist: check the path, or give a size to have a file made, as in \
             --{class} {shown},size=10GiB"
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
            "{shown} exists with {}, and size={size} was asked for: leave the size out, or use another path",
            Bytes(found.len())
        )),
        (Ok(found), Some(_)) if found.file_type().is_block_device() => {
            invalid(format!("{shown} is a block device, whose size is given: leave size= out"))
        }
        (Ok(_), Some(_)) => Ok(Prepared::Found),
    }
}

/// For its owner alone: the file will hold all that the volume does.
fn make_file(path: &Path, size: Bytes) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(size.0).inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// Refuses one device under two paths, also by a partition, a loop device or a link, before its lock says "in
/// use by another process".
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
        }
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        let noted = self.served.begins(Op::Read, offset, into.len());
        let read = match &self.backing {
            Backing::File(device) => device.read(offset, into).await,
            Backing::EmulatedFile(device) => device.read(offset, into).await,
            Backing::Memory(device) => device.read(offset, into).await,
            Backing::EmulatedMemory(device) => device.read(offset, into).await,
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
    fn a_missing_file_is_made_only_where_a_size_is_given() {
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
