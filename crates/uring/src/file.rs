//! A block device or a regular file as a device.

use crate::Ring;
use crate::open::{Access, Permission, failed, open};
use crate::ring_file::RingFile;
use braid_base::{Bytes, DeviceClass};
use braid_runtime::{Buf, Device, Geometry};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// How far a flush reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// To the disk: flushed data survives a power cut.
    ToDisk,
    /// To the host's page cache, at no cost: flushed data survives the death of the daemon (kill -9), but no
    /// power cut or crash of the host. For files that stand for a device with a flush time charged by a
    /// model.
    ToPageCache,
}

/// A block device, or a regular file in place of a device. Locked while open.
///
/// After a failed flush every later flush fails. The kernel forgets data that it could not write, and a later
/// flush that succeeds would hide the loss. Opening the device anew starts afresh.
///
/// A file that has become shorter has lost bytes, and a write could extend the file again with a hole in
/// their place. The length is therefore checked before each write and after each flush, at 0.1 to 0.5 µs
/// each. If the file system may block, a worker of the kernel asks for the length. After the first length
/// that is too short, every write and flush fails. A write in flight during the truncation may still extend
/// the file: the next flush notices, unless the write ended at the former end of the file.
pub struct FileDevice {
    file: RingFile,
    path: PathBuf,
    geometry: Geometry,
    flush: Flush,
    flush_failed: Cell<bool>,
    /// Smallest length that a regular file may have. Block devices cannot become shorter.
    length: Option<u64>,
    /// Length that was found too short.
    truncated: Cell<Option<u64>>,
    discard: Cell<Discard>,
    /// Keeps the locks of the file or device under a loop device.
    _beneath: Option<File>,
}

/// How the file takes a discard. Tried in this order: the first discard finds an older kernel, or a device
/// without the command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Discard {
    /// By command: block devices, Linux 6.12.
    Command,
    /// By punching a hole: files. A block device writes zeros with a command that costs it no writing. The
    /// kernel does this in a thread of its own, so the shard does not wait.
    Hole,
    /// Not at all.
    Never,
}

impl FileDevice {
    /// Opens a block device or regular file, and locks it against a second opening.
    ///
    /// The size is the size of the block device, or the present length of the file, rounded down to a
    /// multiple of the alignment. The alignment is the kernel's for direct access, else 512 bytes.
    ///
    /// # Errors
    /// `ResourceBusy` if another process holds the device; `NotFound`, `PermissionDenied`, `InvalidInput`
    /// (empty, or not a file) and `Unsupported` (direct access). Messages name the path and the remedy.
    /// Blocks the shard while opening: if udev or an ended process holds the device, for up to half a minute.
    /// A shard with guests calls [`crate::wait_until_free`] in another thread first.
    pub fn open(ring: &Ring, path: &Path, class: DeviceClass, access: Access) -> io::Result<FileDevice> {
        FileDevice::open_with(ring, path, class, access, Permission::ReadWrite)
    }

    /// Opens the device for reading only; other readers may open it at the same time. Writes and discards
    /// fail.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn open_read_only(
        ring: &Ring,
        path: &Path,
        class: DeviceClass,
        access: Access,
    ) -> io::Result<FileDevice> {
        FileDevice::open_with(ring, path, class, access, Permission::Read)
    }

    fn open_with(
        ring: &Ring,
        path: &Path,
        class: DeviceClass,
        access: Access,
        permission: Permission,
    ) -> io::Result<FileDevice> {
        let opened = open(path, access, permission)?;
        let discard = if opened.length.is_none() { Discard::Command } else { Discard::Hole };
        Ok(FileDevice {
            file: RingFile::new(ring, opened.file, opened.may_block),
            path: path.to_owned(),
            geometry: Geometry {
                size: opened.size,
                class,
                alignment: opened.alignment,
                memory_alignment: opened.memory_alignment,
            },
            flush: Flush::ToDisk,
            flush_failed: Cell::new(false),
            length: opened.length,
            truncated: Cell::new(None),
            discard: Cell::new(discard),
            _beneath: opened.beneath,
        })
    }

    /// Sets how far flushes reach. The default is [`Flush::ToDisk`].
    pub fn with_flush(mut self, flush: Flush) -> FileDevice {
        self.flush = flush;
        self
    }

    /// Path by which the device was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of a request of `len` bytes that are done after `count` more. Rounded down if the next part must
    /// start aligned.
    async fn advance(&self, done: Bytes, count: u32, len: Bytes) -> io::Result<Bytes> {
        let reached = done + Bytes(count.into());
        let next = if reached == len { len } else { reached.align_down(self.geometry.alignment) };
        if next > done {
            return Ok(next);
        }
        self.check_length().await?;
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the device ends there"))
    }

    /// Fails if the file is, or ever was, shorter than at the opening.
    async fn check_length(&self) -> io::Result<()> {
        let Some(expected) = self.length else { return Ok(()) };
        if self.truncated.get().is_none() {
            let found = self.file.length().await?;
            if found >= expected {
                return Ok(());
            }
            self.truncated.set(Some(found));
        }
        Err(self.too_short(expected))
    }

    #[cold]
    fn too_short(&self, expected: u64) -> io::Error {
        let found = self.truncated.get().unwrap_or_default();
        let problem = format!(
            "the file has become shorter while in use, from {expected} to {found} bytes, and the data \
             beyond is lost: stop the volume, and restore the file or check the volume"
        );
        io::Error::new(io::ErrorKind::UnexpectedEof, problem)
    }

    fn failed(&self, operation: &str, offset: Bytes, len: Bytes, error: io::Error) -> io::Error {
        // The descriptor is open, but for reading alone.
        let error = match error.raw_os_error() {
            Some(libc::EBADF) => io::Error::from_raw_os_error(libc::EROFS),
            _ => error,
        };
        failed(&self.path, &format!("{operation} {len:?} at {offset:?} of"), error)
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.geometry.check_buffer(offset, into)?;
        let mut done = Bytes::ZERO;
        while done < into.len() {
            let read = again(|| self.file.read(offset, into, done)).await;
            let next = match read {
                Ok(count) => self.advance(done, count, into.len()).await,
                Err(error) => Err(error),
            };
            done = next.map_err(|e| self.failed("read", offset, into.len(), e))?;
        }
        Ok(())
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        self.geometry.check_buffer(offset, from)?;
        self.check_length().await.map_err(|e| self.failed("write", offset, from.len(), e))?;
        let mut done = Bytes::ZERO;
        while done < from.len() {
            let written = again(|| self.file.write(offset, from, done)).await;
            let next = match written {
                Ok(count) => self.advance(done, count, from.len()).await,
                Err(error) => Err(error),
            };
            done = next.map_err(|e| self.failed("write", offset, from.len(), e))?;
        }
        Ok(())
    }

    async fn flush(&self) -> io::Result<()> {
        if self.flush == Flush::ToDisk {
            let result = again(|| self.file.sync()).await;
            if let Err(error) = result {
                self.flush_failed.set(true);
                return Err(failed(&self.path, "flush", error));
            }
        }
        self.check_length().await.map_err(|e| failed(&self.path, "promise a flush of", e))?;
        if self.flush_failed.get() {
            let lost = io::Error::other("an earlier flush failed, and writes before it may be lost");
            return Err(failed(&self.path, "promise a flush of", lost));
        }
        Ok(())
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.geometry.check(offset, len)?;
        if len == Bytes::ZERO {
            return Ok(());
        }
        loop {
            let way = self.discard.get();
            let result = match way {
                Discard::Command => again(|| self.file.discard(offset, len)).await,
                Discard::Hole => again(|| self.file.punch_hole(offset, len)).await,
                Discard::Never => return Ok(()),
            };
            match result {
                Err(error) if is_unsupported(&error) => self.discard.set(way.next()),
                result => return result.map(drop).map_err(|e| self.failed("discard", offset, len, e)),
            }
        }
    }
}

impl Discard {
    fn next(self) -> Discard {
        match self {
            Discard::Command => Discard::Hole,
            Discard::Hole | Discard::Never => Discard::Never,
        }
    }
}

/// Repeats an operation until no signal interrupts it.
async fn again<F: Future<Output = io::Result<u32>>>(start: impl Fn() -> F) -> io::Result<u32> {
    loop {
        match start().await {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS | libc::EINVAL))
}
