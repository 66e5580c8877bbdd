//! Kernel block device of a served volume: make, find again, remove. The side of the command line.
//!
//! Must run in another process than the daemon, because opening the file is a request to the daemon. All
//! calls are synchronous. No state is kept beside the kernel's own: a loop device carries the name of its
//! file, so a later process, even after a crash, finds the device.

use crate::filesystem::sector_size;
use crate::loop_device::{LoopDevice, Status, lock};
use crate::mounts::{MOUNT_KIND, Use, has_other_mounts, list, mounts_of, uses};
use crate::protocol::FILE_NAME;
use braid_engine::{Error, ErrorKind, Result};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interface of all ways to make a volume a block device of the kernel.
pub trait Attachment {
    /// Name of the way: `loop`.
    fn kind(&self) -> &'static str;

    /// Makes the block device, if there is none yet, and returns its path.
    fn attach(&self) -> Result<PathBuf>;

    /// Path of the block device, if one works.
    fn device(&self) -> Result<Option<PathBuf>>;

    /// Removes the block device, and returns once the device is gone. Refused while the device is in use: the
    /// error lists the uses.
    fn detach(&self) -> Result<()>;
}

/// Attachment by a loop device over the file that [`crate::Server`] serves.
pub struct LoopAttachment {
    /// The mounted directory, without symbolic links.
    directory: PathBuf,
    /// Sector size; if none, the content of the volume decides.
    sector: Option<u32>,
    /// Daemon in a mount namespace of its own, where alone the directory is mounted.
    apart: Option<u32>,
}

/// A loop device with a dead daemon: every request fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stale {
    /// The block device.
    pub device: PathBuf,
    /// Uses that keep the device: to be unmounted. Empty if the device is about to go.
    pub uses: Vec<Use>,
}

impl LoopAttachment {
    /// Attachment of the volume that is served in `directory`; see [`crate::Server::start`].
    ///
    /// # Errors
    /// If the directory does not exist.
    pub fn new(directory: &Path) -> Result<LoopAttachment> {
        Ok(LoopAttachment { directory: resolve(directory)?, sector: None, apart: None })
    }

    /// Sets the sector size, regardless of the volume's content: the sector size of an adopted disk. With
    /// none, the content decides.
    pub fn with_sector(self, sector: Option<u32>) -> LoopAttachment {
        LoopAttachment { sector, ..self }
    }

    /// Sets the process of the daemon. A daemon in a sandbox of systemd has a mount namespace of its own, and
    /// the mount is visible there alone. A daemon in the namespace of this process changes nothing.
    pub fn served_by(self, daemon: Option<u32>) -> LoopAttachment {
        LoopAttachment { apart: daemon.filter(|&daemon| has_other_mounts(daemon)), ..self }
    }

    /// Path of the file in the daemon's mount namespace.
    fn file(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    /// Path by which this process reaches the mounted directory.
    fn reached(&self) -> PathBuf {
        let below_root = self.directory.strip_prefix("/").unwrap_or(&self.directory);
        self.apart.map_or(self.directory.clone(), |daemon| {
            Path::new("/proc").join(daemon.to_string()).join("root").join(below_root)
        })
    }

    /// Loop devices made for this file, by this or an earlier daemon.
    fn loop_devices(&self) -> Result<Vec<(LoopDevice, Status)>> {
        let name = loop_name(&self.file());
        let mut all = LoopDevice::bound()?;
        all.retain(|(_, status)| status.name == name);
        Ok(all)
    }

    /// Loop device with its file in the mount that serves now.
    fn live(&self) -> Result<Option<LoopDevice>> {
        let Some(mounted) = self.mounted()? else { return Ok(None) };
        Ok(self
            .loop_devices()?
            .into_iter()
            .find(|(_, status)| status.backing == mounted)
            .map(|(device, _)| device))
    }

    /// Device number of the file system that serves in the directory, if any.
    fn mounted(&self) -> Result<Option<(u32, u32)>> {
        // The death of a killed daemon may show only while this call waits for its answer.
        if let Err(Errno::NOTCONN | Errno::CONNABORTED) = rustix::fs::statfs(self.reached()) {
            return Ok(None);
        }
        // Of several mounts upon each other, the last is visible.
        let mounts = mounts_of(&self.apart.map_or("self".to_owned(), |daemon| daemon.to_string()))?;
        let here = mounts.iter().rfind(|mount| mount.point == self.directory && mount.kind == MOUNT_KIND);
        Ok(here.map(|mount| mount.device))
    }

    /// All block devices made for this file, by this or an earlier daemon, including devices of a dead
    /// daemon.
    ///
    /// # Errors
    /// If the kernel does not list the loop devices.
    pub fn all_devices(&self) -> Result<Vec<PathBuf>> {
        Ok(self.loop_devices()?.into_iter().map(|(device, _)| device.path()).collect())
    }

    fn stale(&self) -> Result<Vec<LoopDevice>> {
        let mounted = self.mounted()?;
        let left = self.loop_devices()?.into_iter().filter(|(_, status)| Some(status.backing) != mounted);
        Ok(left.map(|(device, _)| device).collect())
    }

    /// Loop devices of this volume with a dead daemon. [`Attachment::attach`] marks the devices to go at the
    /// end of their last use; unmount their uses.
    ///
    /// # Errors
    /// If the kernel does not list the loop devices or the mounts.
    pub fn remains(&self) -> Result<Vec<Stale>> {
        let describe = |device: LoopDevice| {
            let device = device.path();
            Ok(Stale { uses: uses(&device)?, device })
        };
        self.stale()?.into_iter().map(describe).collect()
    }

    /// Gives the block device the present size of the volume, and returns its path; `None` if the volume is
    /// not attached.
    ///
    /// # Errors
    /// If the kernel does not take the size.
    pub fn follow_size(&self) -> Result<Option<PathBuf>> {
        let _lock = lock()?;
        let Some(device) = self.live()? else { return Ok(None) };
        // The look at the file also tells the kernel the size.
        let looked = std::fs::metadata(self.reached().join(FILE_NAME));
        let size = looked.map_err(|error| Error::io("the size of the volume", &error))?.len();
        device.follow_size()?;
        device.check(size)?;
        Ok(Some(device.path()))
    }

    fn open_file(&self) -> Result<File> {
        let file = self.reached().join(FILE_NAME);
        OpenOptions::new().read(true).write(true).open(&file).map_err(|error| {
            let attempt = format!("opening {} (is the volume served? see 'braid serve')", file.display());
            Error::io(attempt, &error)
        })
    }
}

impl Attachment for LoopAttachment {
    fn kind(&self) -> &'static str {
        "loop"
    }

    /// Uses direct I/O, so that no byte is cached twice and the volume's flushes reach the daemon; fails if
    /// the kernel refuses direct I/O. Stale devices of the same volume are marked to go at the end of their
    /// last use.
    fn attach(&self) -> Result<PathBuf> {
        let _lock = lock()?;
        if let Some(device) = self.live()? {
            return Ok(device.path());
        }
        for device in self.stale()? {
            device.clear_when_unused()?;
        }
        let file = self.open_file()?;
        let size = file.metadata().map_err(|error| Error::io("the size of the volume", &error))?.len();
        let mut first = vec![0; FIRST_BYTES.min(size as usize)];
        file.read_exact_at(&mut first, 0)
            .map_err(|error| Error::io("reading the volume's first bytes", &error))?;
        let sector = self.sector.unwrap_or_else(|| sector_size(&first, size));
        let device = LoopDevice::configure(&file, sector, &loop_name(&self.file()))?;
        device.check(size).inspect_err(|_| drop(device.clear_when_unused()))?;
        Ok(device.path())
    }

    fn device(&self) -> Result<Option<PathBuf>> {
        Ok(self.live()?.map(|device| device.path()))
    }

    /// A stale device counts too: detaching after a crash removes the device.
    fn detach(&self) -> Result<()> {
        let _lock = lock()?;
        let devices = self.loop_devices()?;
        if devices.is_empty() {
            let message = format!("the volume at {} is not attached", self.directory.display());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        for (device, _) in devices {
            let path = device.path();
            refuse_used(&path)?;
            clear_unused(device).map_err(|error| match error.kind() {
                io::ErrorKind::ResourceBusy => in_use(&path, "claimed by another program"),
                _ => Error::io(format_args!("detaching {}", path.display()), &error),
            })?;
            if !device.wait_until_gone(PATIENCE) {
                return Err(in_use(
                    &path,
                    "still open in another program, and goes when that program closes it",
                ));
            }
        }
        Ok(())
    }
}

/// Detaches, with retries while the device is busy: an unmount releases its device a little later than it
/// returns.
fn clear_unused(device: LoopDevice) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        match device.clear_unused() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Loop devices over the volume of `directory` with a dead daemon, as [`LoopAttachment::remains`].
pub fn stale(directory: &Path) -> Result<Vec<Stale>> {
    LoopAttachment::new(directory)?.remains()
}

/// Bytes that identify the content of a volume: the superblock of btrfs lies furthest back.
pub const FIRST_BYTES: usize = 68 << 10;

/// Time for passing looks at a device to end, and for a detached device to go: until the last program that
/// opened the device has closed it.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Name for a loop device: the kernel keeps 63 bytes. A longer path keeps its end, behind a number made of
/// the whole path.
fn loop_name(file: &Path) -> Vec<u8> {
    const ROOM: usize = 63;
    let path = file.as_os_str().as_bytes();
    if path.len() <= ROOM {
        return path.to_vec();
    }
    // FNV-1a, 64 bits.
    let number = path.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut name = format!("{number:016x}").into_bytes();
    name.extend_from_slice(&path[path.len() - (ROOM - name.len())..]);
    name
}

/// Path without symbolic links. The directory itself may be a dead mount, which must not be looked at.
fn resolve(directory: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(directory).map_err(|error| Error::io(directory.display(), &error))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else { return Ok(absolute) };
    let parent = parent.canonicalize().map_err(|error| Error::io(parent.display(), &error))?;
    Ok(parent.join(name))
}

/// Refuses a device in use. A claim without any other sign of use may be a passing look, by udev or another
/// `braid`: waits for its end.
fn refuse_used(device: &Path) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        match &uses(device)?[..] {
            [] => return Ok(()),
            [Use::Claimed] if Instant::now() < end => std::thread::sleep(PAUSE),
            uses => return Err(in_use(device, &list(uses))),
        }
    }
}

fn in_use(device: &Path, how: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} is {how}: unmount or close it first", device.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_with_equal_ends_have_different_names() {
        let (one, two) = (format!("/a/{}/volume", "x".repeat(80)), format!("/b/{}/volume", "x".repeat(80)));
        assert_eq!(loop_name(Path::new(&one)).len(), 63);
        assert_ne!(loop_name(Path::new(&one)), loop_name(Path::new(&two)));
        assert_eq!(loop_name(Path::new("/run/braid/v/volume")), b"/run/braid/v/volume");
    }
}
