//! The channel to the kernel: `/dev/fuse`, and the mount that belongs to it.
//!
//! The channel never blocks: a task that finds no request waits for readiness through the ring. When the last
//! descriptor of the channel closes, as after `kill -9`, the kernel ends every request of the mount with an
//! error and answers each later one with `ENOTCONN`; the mount itself stays, dead, until somebody takes it
//! off ([`remove_dead_mounts`]).

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

/// A mounted directory and the channel on which its requests arrive.
pub(crate) struct Connection {
    channel: OwnedFd,
    directory: PathBuf,
}

/// What came out of the channel.
pub(crate) enum Received {
    /// A request; of a write, its bytes are in the inbox.
    Request(Request),
    /// No request at this moment.
    Nothing,
    /// The mount is gone: no request will ever come.
    Ended,
}

impl Connection {
    /// Mounts `directory`, which must exist, with `name` as the source that `mount` lists.
    pub fn open(directory: &Path, name: &str) -> Result<Connection> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let channel = rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| {
            Error::io("opening /dev/fuse (is the kernel's FUSE there? are you root?)", &error.into())
        })?;
        // Everyone may reach the mount as far as the mode bits let them: those are 0600, and the kernel
        // checks them. Without `allow_other` even a root process whose group differs from the daemon's would
        // be shut out.
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

    /// Takes one request off the channel; what follows its first 80 bytes lands in `inbox`, which must have
    /// room for the largest write.
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
            // Interrupted, or a request that was taken back while it was read: the next may be there.
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
        // The kernel takes an answer whole or not at all. It refuses one whose asker was killed meanwhile, or
        // whose mount is gone; nobody is left to be told, and the next receive reports an end of the mount.
        let _ = rustix::io::writev(&self.channel, pieces);
    }

    /// Takes the mount off. Refused with `EBUSY` while a file in it is open, by a loop device or anyone.
    pub fn unmount(&self) -> std::io::Result<()> {
        Ok(rustix::mount::unmount(&self.directory, UnmountFlags::NOFOLLOW)?)
    }

    /// Takes the mount away even while programs use it; they go on as long as the channel is served.
    pub fn unmount_lazily(&self) -> std::io::Result<()> {
        Ok(rustix::mount::unmount(&self.directory, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Makes `directory` fit for a new mount: creates it where it is missing, and takes off what a killed daemon
/// left. Refuses where another daemon serves there.
pub(crate) fn prepare(directory: &Path) -> Result<()> {
    remove_dead_mounts(directory)?;
    let attempt = format!("creating {}", directory.display());
    fs::create_dir_all(directory).map_err(|error| Error::io(attempt, &error))?;
    refuse_served(directory)
}

/// Takes off `directory` what killed daemons left mounted there. Returns how many dead mounts there were.
///
/// # Errors
/// If the kernel does not unmount, or there are more than 64.
pub fn remove_dead_mounts(directory: &Path) -> Result<usize> {
    for dead in 0..MOST_DEAD {
        match rustix::fs::statfs(directory) {
            Err(Errno::NOTCONN) => {
                let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
                let attempt = format!("taking the dead mount off {}", directory.display());
                rustix::mount::unmount(directory, flags)
                    .map_err(|error| Error::io(attempt, &error.into()))?;
            }
            // The daemon died while this waited for its answer: ask again.
            Err(Errno::CONNABORTED) => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(dead),
            Err(error) => return Err(Error::io(directory.display(), &error.into())),
        }
    }
    Err(Error::new(ErrorKind::Io, format!("more than {MOST_DEAD} dead mounts on {}", directory.display())))
}

/// Whether the mount that is seen in a directory is one whose daemon has ended. Must not be asked while a
/// daemon serves there: one that hangs does not answer.
pub fn is_dead_mount(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_err_and(|error| error == Errno::NOTCONN)
}

/// A bound on mounts upon each other: each killed daemon leaves one, and the next start removes it.
const MOST_DEAD: usize = 64;

fn refuse_served(directory: &Path) -> Result<()> {
    let directory = directory.canonicalize().map_err(|error| Error::io(directory.display(), &error))?;
    if mounts()?.iter().any(|mount| mount.kind == MOUNT_KIND && mount.point == directory) {
        let message = format!("{} is served by another daemon: stop that one first", directory.display());
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}
