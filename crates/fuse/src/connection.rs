//! Channel to the kernel: `/dev/fuse`, and its mount.
//!
//! The channel never blocks: a task that finds no request waits for readiness through the ring. When the last
//! descriptor of the channel closes, as after `kill -9`, the kernel ends every request of the mount with an
//! error and answers each later request with `ENOTCONN`. The mount itself stays, dead, until
//! [`remove_dead_mounts`] or an administrator unmounts it.

use crate::mounts::{MOUNT_KIND, mounts};
use crate::protocol::{HEAD, Request, decode};
use crate::reply::Reply;
use braid_engine::{Error, ErrorKind, Result};
use braid_runtime::{Arena, Buf};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A mounted directory and the channel for its requests.
pub(crate) struct Connection {
    channel: OwnedFd,
    directory: PathBuf,
}

/// Result of a receive.
pub(crate) enum Received {
    /// A request; the bytes of a write are in the inbox.
    Request(Request),
    /// No request at this moment.
    Nothing,
    /// The mount is gone: no request will ever come.
    Ended,
}

impl Connection {
    /// Mounts `directory`, which must exist, with `name` as the source in the list of `mount`.
    pub fn open(directory: &Path, name: &str) -> Result<Connection> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let channel = rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| {
            Error::io("opening /dev/fuse (needs root, and the kernel's FUSE)", &error.into())
        })?;
        // All users may reach the mount as far as the mode bits allow: the bits are 0600, and the kernel
        // checks them. Without `allow_other`, even a root process of another group than the daemon's would be
        // shut out.
        let options = format!(
            "fd={},rootmode=40000,user_id={},group_id={},allow_other,default_permissions,max_read={}",
            channel.as_raw_fd(),
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
            Arena::LARGEST.0,
        );
        let options = CString::new(options).expect("mount options hold no zero byte");
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount(name, directory, MOUNT_KIND, flags, options.as_c_str()).map_err(|error| {
            Error::io(format_args!("mounting {} (needs root)", directory.display()), &error.into())
        })?;
        Ok(Connection { channel, directory: directory.to_owned() })
    }

    /// Takes one request off the channel. Bytes after the first 80 land in `inbox`, which must have room for
    /// the largest write.
    pub fn try_receive(&self, inbox: &Buf) -> Result<Received> {
        debug_assert_eq!(inbox.len(), Arena::LARGEST);
        let mut head = [0; HEAD];
        let received = inbox.with_bytes_mut(|bytes| {
            rustix::io::readv(&self.channel, &mut [IoSliceMut::new(&mut head), IoSliceMut::new(bytes)])
        });
        match received {
            Ok(received) => match decode(&head, received) {
                Some(request) => Ok(Received::Request(request)),
                None => Err(Error::new(ErrorKind::Io, format!("a FUSE request of {received} bytes"))),
            },
            // Interrupted, or a request that was withdrawn during the read: another request may be waiting.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Ok(Received::Nothing),
            Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::Ended),
            Err(error) => Err(Error::io("receiving from /dev/fuse", &error.into())),
        }
    }

    /// Answers a request.
    pub fn send(&self, reply: &Reply) {
        self.send_all(&[IoSlice::new(reply.as_bytes())]);
    }

    /// Answers a read.
    pub fn send_bytes(&self, unique: u64, bytes: &Buf) {
        let reply = Reply::before_bytes(unique, bytes.len());
        bytes.with_bytes(|bytes| self.send_all(&[IoSlice::new(reply.as_bytes()), IoSlice::new(bytes)]));
    }

    fn send_all(&self, pieces: &[IoSlice<'_>]) {
        // The kernel takes an answer whole or not at all. The kernel refuses an answer if the asking process
        // was killed meanwhile, or the mount is gone. Nobody is left to be told, and the next receive reports
        // the end of the mount.
        let _ = rustix::io::writev(&self.channel, pieces);
    }

    /// Unmounts the directory. Refused with `EBUSY` while a file in the mount is open, by a loop device or
    /// any process.
    pub fn unmount(&self) -> std::io::Result<()> {
        Ok(rustix::mount::unmount(&self.directory, UnmountFlags::NOFOLLOW)?)
    }

    /// Unmounts the directory even while programs use it. The programs continue as long as the channel is
    /// served.
    pub fn unmount_lazily(&self) -> std::io::Result<()> {
        Ok(rustix::mount::unmount(&self.directory, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Prepares `directory` for a new mount: creates the directory if missing, and removes mounts left by killed
/// daemons. Refuses if another daemon serves there.
pub(crate) fn prepare(directory: &Path) -> Result<()> {
    remove_dead_mounts(directory)?;
    let attempt = format!("creating {}", directory.display());
    fs::create_dir_all(directory).map_err(|error| Error::io(attempt, &error))?;
    refuse_served(directory)
}

/// Unmounts from `directory` the mounts left by killed daemons. Returns the number of dead mounts.
///
/// # Errors
/// If the kernel does not unmount, or there are more than 64.
pub fn remove_dead_mounts(directory: &Path) -> Result<usize> {
    for dead in 0..MOST_DEAD {
        match rustix::fs::statfs(directory) {
            Err(Errno::NOTCONN) => {
                let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
                let attempt = format!("unmounting the dead mount on {}", directory.display());
                rustix::mount::unmount(directory, flags)
                    .map_err(|error| Error::io(attempt, &error.into()))?;
            }
            // The daemon died while this call waited for its answer: ask again.
            Err(Errno::CONNABORTED) => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(dead),
            Err(error) => return Err(Error::io(directory.display(), &error.into())),
        }
    }
    Err(Error::new(ErrorKind::Io, format!("more than {MOST_DEAD} dead mounts on {}", directory.display())))
}

/// True if the visible mount of a directory belongs to a daemon that has ended. Must not be called while a
/// daemon serves there: a daemon that hangs does not answer.
pub fn is_dead_mount(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_err_and(|error| error == Errno::NOTCONN)
}

/// Limit of mounts upon each other: each killed daemon leaves one mount, and the next start removes the
/// mount.
const MOST_DEAD: usize = 64;

fn refuse_served(directory: &Path) -> Result<()> {
    let directory = directory.canonicalize().map_err(|error| Error::io(directory.display(), &error))?;
    if mounts()?.iter().any(|mount| mount.kind == MOUNT_KIND && mount.point == directory) {
        let message = format!("{} is served by another daemon: stop that daemon first", directory.display());
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}
