//! Opens a block device or file as a device: size, alignment, and the lock that keeps a second daemon away.
#![allow(unsafe_code)]

use crate::beneath::{Beneath, beneath};
use crate::peer::has_ended;
use braid_base::{Bytes, SECTOR};
use braid_runtime::Buf;
use rustix::fs::{AtFlags, FlockOperation, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Way of access to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Past the host's page cache (O_DIRECT): a written byte is in memory once, and the speed of the device
    /// shows.
    Direct,
    /// Through the host's page cache: for files that stand for a device, and file systems without direct I/O.
    /// On ext4 the kernel hands such writes to threads of its own, which cost 6 to 15 µs of processor time
    /// each, not 1.
    Cached,
}

/// Access that an opening requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Permission {
    /// Exclusive.
    ReadWrite,
    /// Beside other readers.
    Read,
}

/// Result of an opening.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) size: Bytes,
    /// Length of a regular file; `size` may be less.
    pub(crate) length: Option<u64>,
    /// True if a request may put its submitting thread to sleep.
    pub(crate) may_block: bool,
    /// Unit of offsets and lengths.
    pub(crate) alignment: Bytes,
    /// Unit of addresses in memory.
    pub(crate) memory_alignment: Bytes,
    /// File or device under a loop device, locked while this is kept.
    pub(crate) beneath: Option<File>,
}

/// Opens `path`, and locks the file against the processes that `permission` excludes.
pub(crate) fn open(path: &Path, access: Access, permission: Permission) -> io::Result<Opened> {
    let kind = std::fs::metadata(path).map_err(|e| failed(path, "look at", e))?.file_type();
    let is_block_device = kind.is_block_device();
    if !is_block_device && !kind.is_file() {
        let problem = format!("{} is neither a block device nor a regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let direct = if access == Access::Direct { libc::O_DIRECT } else { 0 };
    // Only for writing: before Linux 6.4 a ring releases a closed device a second late, and a daemon reads
    // each device before it opens the device for writing.
    let claims = is_block_device && permission == Permission::ReadWrite;
    let exclusive = if claims { libc::O_EXCL } else { 0 };
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(permission == Permission::ReadWrite)
        .custom_flags(direct | exclusive | libc::O_CLOEXEC);
    let file = open_patiently(&options, path).map_err(|e| refused(path, access, e))?;
    lock(path, &file, permission)?;
    let beneath = if is_block_device { lock_beneath(path, &file, permission)? } else { None };
    let (alignment, memory_alignment) = match access {
        Access::Cached => (SECTOR, Bytes(1)),
        Access::Direct => direct_alignment(path, &file, is_block_device)?,
    };
    let bytes = if is_block_device { block_device_size(&file) } else { file.metadata().map(|m| m.len()) };
    let bytes = bytes.map_err(|e| failed(path, "ask for the size of", e))?;
    let size = Bytes(bytes).align_down(alignment);
    if size == Bytes::ZERO {
        let remedy = match is_block_device {
            true => "its size is 0: check that a medium is present, and that the device is set up".to_owned(),
            false => format!("give it a size, for example by `truncate -s 10G {}`", path.display()),
        };
        let problem = format!("{} is smaller than {alignment}, the unit of access: {remedy}", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let length = (!is_block_device).then_some(bytes);
    let may_block = !is_block_device && may_block(&file);
    Ok(Opened { file, size, length, may_block, alignment, memory_alignment, beneath })
}

/// Waits in the calling thread until neither udev nor an ended process holds `path`. An opening for writing
/// soon afterwards rarely waits. The opening reports all problems other than the holder.
///
/// # Errors
/// `ResourceBusy` if another process holds the device.
pub fn wait_until_free(path: &Path) -> io::Result<()> {
    let Ok(kind) = std::fs::metadata(path).map(|found| found.file_type()) else { return Ok(()) };
    let is_block_device = kind.is_block_device();
    if !is_block_device && !kind.is_file() {
        return Ok(());
    }
    let exclusive = if is_block_device { libc::O_EXCL } else { 0 };
    let mut options = OpenOptions::new();
    // A device only for reading: udev reads each device that was closed after writing. A file for writing: a
    // lock over NFS needs that.
    options.read(true).write(!is_block_device).custom_flags(exclusive | libc::O_CLOEXEC);
    let waited =
        open_patiently(&options, path).map_err(|e| refused(path, Access::Cached, e)).and_then(|file| {
            lock(path, &file, Permission::ReadWrite)?;
            if is_block_device { lock_beneath(path, &file, Permission::Read) } else { Ok(None) }
        });
    match waited {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(error),
        _ => Ok(()),
    }
}

/// True if the file system of a file may wait for a server or another process (FUSE, NFS, CIFS, 9p) and block
/// the thread. False only for file systems that are known to wait for disks alone. A wrong yes costs some
/// microseconds for each request, a wrong no blocks the whole daemon if the server hangs.
fn may_block(file: &File) -> bool {
    let found = rustix::fs::fstatfs(file).map(|found| found.f_type as u64 & u64::from(u32::MAX));
    found.map_or(true, |magic| !WAIT_FOR_DISKS_ALONE.contains(&magic))
}

/// Magic numbers of linux/magic.h, of bcachefs, and of ZFS.
const WAIT_FOR_DISKS_ALONE: [u64; 9] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0xf2f5_2010, // F2FS
    0x3153_464a, // JFS
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // ZFS
];

/// Adds the operation and the path to an error, and keeps the error as the source.
pub(crate) fn failed(path: &Path, tried: &str, error: io::Error) -> io::Error {
    let problem = format!("cannot {tried} {}: {error}", path.display());
    io::Error::new(error.kind(), Explained { problem, cause: error })
}

fn refused(path: &Path, access: Access, error: io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EBUSY) => return busy(path),
        Some(libc::EACCES | libc::EPERM) => {
            "its owner, root or a member of its group (often `disk`) may open it"
        }
        Some(libc::EROFS) => {
            "it is read-only: make it writable (`blockdev --setrw`, or remount its file system)"
        }
        Some(libc::EINVAL) if access == Access::Direct => {
            "its file system has no direct I/O: use cached access"
        }
        _ => return failed(path, "open", error),
    };
    let problem = format!("cannot open {}: {error}: {remedy}", path.display());
    io::Error::new(error.kind(), Explained { problem, cause: error })
}

fn busy(path: &Path) -> io::Error {
    let problem = format!(
        "{0} is in use by another process (a second daemon, a mounted file system, LVM or RAID): stop that \
         process first; `fuser -v {0}` and `lsblk {0}` show it",
        path.display()
    );
    io::Error::new(io::ErrorKind::ResourceBusy, problem)
}

/// Takes the advisory lock that every daemon takes; readers share the lock. udev opens each device that was
/// closed after writing and holds its lock for a moment, on a busy machine for seconds. The kernel releases
/// the lock of a killed process with an io_uring only some time after the kill. Hence many tries if the
/// holder is udev or dead.
fn lock(path: &Path, file: &File, permission: Permission) -> io::Result<()> {
    let operation = match permission {
        Permission::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        Permission::Read => FlockOperation::NonBlockingLockShared,
    };
    take(path, file, operation)
}

/// Shares the lock of the file or device under a loop device, and locks the range of the loop device there.
/// Several loop devices and partitions may lie over parts of one file.
fn lock_beneath(path: &Path, device: &File, permission: Permission) -> io::Result<Option<File>> {
    let number = device.metadata().map_err(|e| failed(path, "look at", e))?.rdev();
    let Some(Beneath { path: lower, start }) = beneath(number) else { return Ok(None) };
    let writable = OpenOptions::new().read(true).write(permission == Permission::ReadWrite).open(&lower);
    // A file that is unreachable from here, or has no locks, gives no protection: continue without.
    let Ok(file) = writable.or_else(|_| File::open(&lower)) else { return Ok(None) };
    let len = block_device_size(device).map_err(|e| failed(path, "ask for the size of", e))?;
    let locked = take(&lower, &file, FlockOperation::NonBlockingLockShared)
        .and_then(|()| lock_range(&lower, &file, start, len, permission));
    match locked {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let problem = format!("{} lies over {}: {error}", path.display(), lower.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, problem))
        }
        _ => Ok(Some(file)),
    }
}

/// Locks a range: exclusively for writing; shared for reading, or if the file is open for reading only.
fn lock_range(path: &Path, file: &File, start: u64, len: u64, permission: Permission) -> io::Result<()> {
    let mode = rustix::fs::fcntl_getfl(file)? & OFlags::ACCMODE;
    let is_alone = permission == Permission::ReadWrite && mode == OFlags::RDWR;
    // SAFETY: a lock is plain numbers, and all zeros are valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = if is_alone { libc::F_WRLCK } else { libc::F_RDLCK } as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    (range.l_start, range.l_len) = (start.try_into().map_err(too_far)?, len.try_into().map_err(too_far)?);
    // SAFETY: F_OFD_SETLK reads a lock.
    let locked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    match (locked, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        (_, error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Err(busy(path)),
        (_, error) => Err(error),
    }
}

fn take(path: &Path, file: &File, operation: FlockOperation) -> io::Result<()> {
    lock_patiently(file, operation).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => busy(path),
        _ => failed(path, "lock", error),
    })
}

/// Takes a lock with `operation`, a form that does not wait, but retries. Retries for half a second; for five
/// if udev holds the lock, which reads a device for seconds on a busy machine; and for half a minute if the
/// holders are dead, since the kernel releases the locks of a killed process with a delay.
///
/// # Errors
/// `WouldBlock` if another process holds the lock; errors of `flock`.
pub fn lock_patiently(file: &File, operation: FlockOperation) -> io::Result<()> {
    for attempt in 0..DEAD_TRIES {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if attempt < TRIES || holders_let_go(rustix::fs::fstat(file), attempt) => {
                thread::sleep(PAUSE);
            }
            Err(Errno::WOULDBLOCK) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // The lock may have been released just before the look at its holders.
    Ok(rustix::fs::flock(file, operation)?)
}

/// Opens a file. Retries a busy block device for two seconds: before Linux 6.4 a ring releases a device a
/// second after its closing. Retries longer while the locks of the device tell of an ended process, as in
/// [`lock_patiently`].
fn open_patiently(options: &OpenOptions, path: &Path) -> io::Result<File> {
    for attempt in 1..DEAD_TRIES {
        match options.open(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if attempt >= CLAIM_TRIES && !holders_let_go(rustix::fs::stat(path), attempt) {
                    break;
                }
                thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
    // The device may have been closed just before the look at its locks.
    options.open(path)
}

/// Pause between two tries; tries for a lock, for the claim of a block device, and for both while udev or a
/// dead process holds the lock.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
const TRIES: u32 = 25;
const CLAIM_TRIES: u32 = 100;
const UDEV_TRIES: u32 = 250;
const DEAD_TRIES: u32 = 1_500;

/// True if `/proc/locks` shows holders of a lock on the file, and each has ended or, in the first
/// [`UDEV_TRIES`] attempts, is a process of udev. False if the holders are unknown.
fn holders_let_go(file: rustix::io::Result<rustix::fs::Stat>, attempt: u32) -> bool {
    let Ok(found) = file else { return false };
    let (major, minor) = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    let identity = format!("{major:02x}:{minor:02x}:{}", found.st_ino);
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else { return false };
    let mut holders = locks.lines().filter_map(|line| flock_holder(line, &identity)).peekable();
    let lets_go = |process: &str| match process.parse() {
        Ok(number @ 1..) => {
            Pid::from_raw(number).is_some_and(has_ended) || attempt < UDEV_TRIES && is_of_udev(number)
        }
        // A process of another PID namespace.
        _ => false,
    };
    holders.peek().is_some() && holders.all(lets_go)
}

/// True if a process has a name of systemd's or eudev's udev.
fn is_of_udev(process: i32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    matches!(name.trim_end(), "systemd-udevd" | "(udev-worker)" | "udevd")
}

/// Process of a line such as `2: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`, if the line is about the
/// file.
fn flock_holder<'a>(line: &'a str, identity: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    let is_flock = words.nth(1) == Some("FLOCK");
    let (process, file) = (words.nth(2)?, words.next()?);
    (is_flock && file == identity).then_some(process)
}

/// Alignment for direct I/O: of offsets and lengths, and of addresses.
fn direct_alignment(path: &Path, file: &File, is_block_device: bool) -> io::Result<(Bytes, Bytes)> {
    let statx = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    if let Ok(found) = statx.as_ref()
        && found.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        if found.stx_dio_offset_align == 0 {
            let problem = format!("{}: its file system has no direct I/O: use cached access", path.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        let alignment = Bytes(found.stx_dio_offset_align.into()).max(SECTOR);
        let memory_alignment = Bytes(found.stx_dio_mem_align.max(1).into());
        if memory_alignment > Buf::ALIGNMENT {
            let problem = format!(
                "{}: direct I/O needs buffers at multiples of {memory_alignment:?}, and at most {:?} is \
                 supported: use cached access",
                path.display(),
                Buf::ALIGNMENT
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        return Ok((alignment, memory_alignment));
    }
    // Before Linux 6.1, and if a file system gives no alignment: a block device's own unit, or 4 KiB, which
    // suits all.
    let block = is_block_device.then(|| rustix::fs::ioctl_blksszget(file).ok()).flatten();
    let alignment = block.map_or(Bytes(4096), |bytes| Bytes(bytes.into()));
    Ok((alignment, alignment))
}

fn block_device_size(file: &File) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: BLKGETSIZE64 writes 64 bits to its argument.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes) }
}

/// `_IOR(0x12, 114, size_t)` of linux/fs.h.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;

/// An error with its context and its cause.
#[derive(Debug)]
struct Explained {
    problem: String,
    cause: io::Error,
}

impl std::fmt::Display for Explained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Explained {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_holder_is_found_by_file_id() {
        let line = "2: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF";
        assert_eq!(flock_holder(line, "fd:01:5678"), Some("1234"));
        assert_eq!(flock_holder(line, "fd:01:567"), None);
        assert_eq!(flock_holder("2: POSIX  ADVISORY  WRITE 1234 fd:01:5678 0 EOF", "fd:01:5678"), None);
        assert_eq!(flock_holder("2: -> FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF", "fd:01:5678"), None);
    }

    /// udev by name: the kernel names a process after its program.
    #[test]
    fn lock_of_udev_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let (udev, device) = (directory.path().join("systemd-udevd"), directory.path().join("device"));
        // A copy made by this process might still be open for writing in the child of another test.
        let mut copy = std::process::Command::new("sh");
        copy.args(["-c", "cp $(command -v flock) $0"]).arg(&udev);
        assert!(copy.status().unwrap().success());
        let file = File::create(&device).unwrap();
        let mut holder = std::process::Command::new(&udev).arg(&device).args(["sleep", "2"]).spawn().unwrap();
        while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            assert!(holder.try_wait().unwrap().is_none(), "flock does not hold the lock");
            rustix::fs::flock(&file, FlockOperation::Unlock).unwrap();
        }
        drop(file);
        wait_until_free(&device).unwrap();
        let free = File::open(&device).unwrap();
        rustix::fs::flock(&free, FlockOperation::NonBlockingLockExclusive).expect("udev has ended");
        assert!(holder.wait().unwrap().success());
    }

    #[test]
    fn lock_of_living_process_is_not_reported_dead() {
        let file = tempfile::tempfile().unwrap();
        assert!(!holders_let_go(rustix::fs::fstat(&file), 0));
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!holders_let_go(rustix::fs::fstat(&file), 0));
    }
}
