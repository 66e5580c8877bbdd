//! A device behind a network: an NBD export or an RBD image, whose address takes the place of a path.

use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, MIB, Nanos};
use braid_engine::Sighting;
use braid_nbd::client::{Access as ExportAccess, Address, RemoteDevice};
use braid_rbd::{Access as ImageAccess, ImageName, Made, RbdDevice, images, make_image, remove_image};
use braid_runtime::{Arena, Buf, Device, Geometry};
use braid_uring::Ring;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A connection to a device.
pub(crate) enum Remote {
    Export(RemoteDevice),
    Image(RbdDevice),
}

/// Access that a connection asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// To look, beside any other user.
    ReadOnly,
    /// To use the device, unless another host uses the device.
    ReadWrite,
    /// To use the device, and to shut another host out.
    TakeOver,
}

/// Address of a device.
enum Target {
    Export(Address),
    Image(ImageName),
}

/// True if a path is the address of a remote device.
pub(crate) fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|text| Address::is_address(text) || ImageName::is_image_name(text))
}

/// True if a path is the name of an RBD image, which can be made.
pub(crate) fn is_image(path: &Path) -> bool {
    path.to_str().is_some_and(ImageName::is_image_name)
}

/// Returns an address in its one spelling; any other path as it is.
///
/// # Errors
/// `Usage` if the path begins as an address, and is none.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    if !is_address(path) {
        return Ok(path.to_owned());
    }
    let text = match target_of(path).map_err(|problem| Error::new(ErrorKind::Usage, problem))? {
        Target::Export(address) => address.to_string(),
        Target::Image(image) => image.to_string(),
    };
    Ok(PathBuf::from(text))
}

fn target_of(path: &Path) -> std::result::Result<Target, String> {
    let text = path.to_str().unwrap_or_default();
    match ImageName::is_image_name(text) {
        true => text.parse().map(Target::Image),
        false => text.parse().map(Target::Export),
    }
}

fn image_of(path: &Path) -> io::Result<ImageName> {
    let text = path.to_str().unwrap_or_default();
    text.parse().map_err(|problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem))
}

/// Connects to a device.
///
/// # Errors
/// `InvalidInput` if the path is no address; errors of [`RemoteDevice::connect`] and [`RbdDevice::open`].
pub(crate) async fn connect(
    ring: &Ring,
    path: &Path,
    class: DeviceClass,
    access: Access,
) -> io::Result<Remote> {
    let target = target_of(path).map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
    Ok(match (target, access) {
        (Target::Export(address), Access::ReadOnly) => {
            Remote::Export(RemoteDevice::connect(ring, &address, class, ExportAccess::ReadOnly).await?)
        }
        (Target::Export(address), _) => {
            Remote::Export(RemoteDevice::connect(ring, &address, class, ExportAccess::ReadWrite).await?)
        }
        (Target::Image(image), Access::ReadOnly) => {
            Remote::Image(RbdDevice::open(ring, &image, class, ImageAccess::ReadOnly).await?)
        }
        (Target::Image(image), Access::ReadWrite) => {
            Remote::Image(RbdDevice::open(ring, &image, class, ImageAccess::ReadWrite).await?)
        }
        (Target::Image(image), Access::TakeOver) => {
            Remote::Image(RbdDevice::open_by_force(ring, &image, class).await?)
        }
    })
}

/// Makes an RBD image. Returns false if the image existed with that size.
///
/// # Errors
/// As [`make_image`].
pub(crate) fn make(path: &Path, size: Bytes) -> io::Result<bool> {
    Ok(make_image(&image_of(path)?, size)? == Made::New)
}

/// Removes a file or an RBD image that was made for a volume.
///
/// # Errors
/// Errors of the file system or the cluster.
pub(crate) fn remove_made(path: &Path) -> io::Result<()> {
    if is_image(path) { remove_image(&image_of(path)?) } else { std::fs::remove_file(path) }
}

/// Returns the addresses of the images of the pool `rbd:POOL`. `None` for a path that names no pool.
///
/// # Errors
/// As [`images`].
pub(crate) fn images_of_pool(path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    let pool = path.to_str().and_then(|text| text.strip_prefix("rbd:"));
    let Some(pool) = pool.filter(|pool| !pool.contains('/')) else { return Ok(None) };
    Ok(Some(images(pool)?.into_iter().map(|image| PathBuf::from(image.to_string())).collect()))
}

/// Reads the superblock of a device, on a ring of this thread. The inner error says what is there instead.
///
/// # Errors
/// As [`connect`].
pub(crate) fn sighting(path: &Path) -> io::Result<braid_engine::Result<Sighting>> {
    on_ring(async |ring: &Ring| {
        let device = connect(ring, path, DeviceClass::Hdd, Access::ReadOnly).await?;
        Ok(Sighting::read(&device, &path.display().to_string()).await)
    })
}

/// Returns a file in memory of the device's size with the first and last bytes of the device, where file
/// systems, arrays and Braid keep their signatures; the rest reads as zeros.
///
/// # Errors
/// As [`connect`], and errors of reads.
pub(crate) fn ends(path: &Path) -> io::Result<File> {
    on_ring(async |ring: &Ring| {
        let device = connect(ring, path, DeviceClass::Hdd, Access::ReadOnly).await?;
        let Geometry { size, alignment, .. } = device.geometry();
        let file = File::from(memfd_create("ends of a remote device", MemfdFlags::CLOEXEC)?);
        file.set_len(size.0)?;
        let head = END.min(size);
        let tail = size.saturating_sub(END).align_down(alignment).max(head);
        for (start, end) in [(Bytes::ZERO, head), (tail, size)] {
            if start < end {
                let bytes = Arena::new(MIB * 2).alloc(end - start).await;
                device.read(start, &bytes).await?;
                file.write_all_at(&bytes.to_vec(), start.0)?;
            }
        }
        Ok(file)
    })
}

/// Returns a path that leads to an open file for as long as the file is open.
pub(crate) fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Time from a new connection until an export is used again: requests of an earlier connection that its
/// server had received are carried out by then. A server that is stopped or slow accepts no connection
/// before. A cluster refuses late requests to an image by itself.
pub(crate) const LATE_REQUESTS: Nanos = Nanos::from_secs(2);

/// Length of each end: libblkid finds all signatures within 1 MiB of the start, and within 512 KiB of the
/// end.
const END: Bytes = MIB;

/// Runs `work` on a ring of this thread.
fn on_ring<T>(work: impl AsyncFnOnce(&Ring) -> io::Result<T>) -> io::Result<T> {
    let ring = Ring::new(64, &Arena::new(MIB))?;
    let result = ring.block_on(work(&ring));
    ring.clear();
    result
}

impl Remote {
    /// Ends the connection of a device that the engine no longer uses. Returns false if the server replied to
    /// a request with an error: a new connection would not help.
    pub fn give_up(&self) -> bool {
        match self {
            Remote::Export(device) => device.give_up(),
            Remote::Image(device) => device.give_up(),
        }
    }

    /// True if requests of an earlier connection may be carried out late.
    pub fn has_late_requests(&self) -> bool {
        matches!(self, Remote::Export(_))
    }
}

impl Device for Remote {
    fn geometry(&self) -> Geometry {
        match self {
            Remote::Export(device) => device.geometry(),
            Remote::Image(device) => device.geometry(),
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn repair_time(&self) -> Nanos {
        match self {
            Remote::Export(device) => device.repair_time(),
            Remote::Image(device) => device.repair_time(),
        }
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        match self {
            Remote::Export(device) => device.read(offset, into).await,
            Remote::Image(device) => device.read(offset, into).await,
        }
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        match self {
            Remote::Export(device) => device.write(offset, from).await,
            Remote::Image(device) => device.write(offset, from).await,
        }
    }

    async fn flush(&self) -> io::Result<()> {
        match self {
            Remote::Export(device) => device.flush().await,
            Remote::Image(device) => device.flush().await,
        }
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        match self {
            Remote::Export(device) => device.discard(offset, len).await,
            Remote::Image(device) => device.discard(offset, len).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_told_from_path_and_kept_canonical() {
        for text in ["nbd://host/a", "nbds+unix:///a", "rbd:pool/image"] {
            assert!(is_address(Path::new(text)), "{text}");
        }
        for text in ["/dev/sdb", "nbd", "./nbd://host/a", "rbd", "memory"] {
            assert!(!is_address(Path::new(text)), "{text}");
            assert_eq!(canonical(Path::new(text)).unwrap(), Path::new(text));
        }
        assert_eq!(canonical(Path::new("NBD://Host:10809/a")).unwrap(), Path::new("nbd://host/a"));
        assert_eq!(canonical(Path::new("nbd+unix:///a")).unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(images_of_pool(Path::new("rbd:pool/image")).unwrap(), None);
    }
}
