//! A volume as a kernel block device: one file in a FUSE mount, and a loop device over it.
//!
//! The daemon runs a [`Server`], after [`protect_from_reclaim`]. The command line, another process, makes and
//! removes the block device by an [`Attachment`]: a [`LoopAttachment`]. A block device without this crate's
//! server, and without the limits below, is made by `braid-ublk`, on newer kernels.
//!
//! # When the daemon is killed
//! Its channel to the kernel closes. Every request in flight fails at once, and every later request too:
//! nothing hangs. The mount of the file stays, dead (`ENOTCONN`), with the loop device over the file and any
//! mount of the loop device. A restarted daemon removes the dead mount and mounts afresh; the daemon cannot
//! revive the old loop device.
//!
//! A mounted file system then behaves as follows (seen on Linux 6.18):
//!
//! | | ext4 | XFS | btrfs |
//! |---|---|---|---|
//! | read of cached bytes | works | works | works |
//! | read past the cache | `EIO` | `EIO` | `EIO` |
//! | buffered write | taken until the next commit fails, and lost | the same | the same |
//! | fsync, syncfs | `EIO` | `EIO` | `EIO` |
//! | from then on | journal aborted, read-only (`emergency_ro`) | shut down, all changes `EIO` | forced read-only |
//! | plain `umount` | some milliseconds | some milliseconds | some milliseconds |
//!
//! Data flushed before is on the volume, as after a power cut. Remedy: unmount (XFS, for example, cannot be
//! mounted twice), attach again, mount again; the file system replays its journal. The stale loop device goes
//! with its last mount, once [`Attachment::attach`] has marked the device or [`Attachment::detach`] has
//! removed it. [`stale`] lists the remaining stale devices, with their mounts.
//!
//! Requests to a daemon that is alive but does not answer (stopped by a signal, waiting for a disk) wait
//! without a limit, as with any disk. Killing the daemon ends the wait.
//!
//! # What a loop device costs
//! A loop device hands flushes, discards, reads and writes to the file from the same kernel thread, and the
//! thread waits for a flush or discard; FUSE keeps writes out meanwhile. Requests begun before continue;
//! later requests wait. A volume with many flushes is better served by a door without a loop device.

mod attach;
mod connection;
mod filesystem;
mod loop_device;
mod memory;
mod mount_options;
mod mounts;
mod processes;
mod protocol;
mod reply;
mod serve;
mod server;

pub use attach::{Attachment, FIRST_BYTES, LoopAttachment, Stale, stale};
pub use connection::{is_dead_mount, remove_dead_mounts};
pub use filesystem::{FileSystem, mount, mount_with, sector_size};
pub use memory::{Unprotected, protect_from_reclaim};
pub use mount_options::MountOptions;
pub use mounts::{Use, loop_devices, uses};
pub use processes::{Process, openers, processes};
pub use protocol::{FILE_NAME as VOLUME_FILE, HEAD as REQUEST_HEAD, describe_request};
pub use server::Server;
