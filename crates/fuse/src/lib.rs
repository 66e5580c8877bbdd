//! A volume as a kernel block device: one file in a FUSE mount, and a loop device over it.
//!
//! The daemon runs a [`Server`], after [`protect_from_reclaim`]. The command line, another process, makes and removes
//! the block device by an [`Attachment`]: today a [`LoopAttachment`], later ublk and the kernel's NBD client.
//!
//! # When the daemon is killed
//! Its channel to the kernel closes, and with it every request in flight fails at once and every later one too: nothing
//! hangs. The mount of the file stays, dead, and so does the loop device over it, and whatever is mounted on that. A
//! restarted daemon takes the dead mount away and mounts afresh; it cannot revive the old loop device. So:
//!
//! * ext4 gives up its journal at the first failed write and turns read-only; XFS shuts down; both report I/O errors
//!   to their users. What they had flushed is on the volume, as after a power cut.
//! * Unmount them. The stale loop device then goes by itself, once [`Attachment::attach`] has marked it; [`stale`]
//!   lists those that are left, and where they are still mounted.
//! * Attach again, and mount again: the file system replays its journal.
//!
//! # What a loop device costs
//! It hands a flush or a discard to the file from the same kernel thread that hands over reads and writes, and waits
//! for it; FUSE keeps writes out meanwhile. Requests that were begun before go on; those that follow wait. A volume with
//! many flushes is better served by a door without a loop device.

mod attach;
mod connection;
mod filesystem;
mod loop_device;
mod memory;
mod mounts;
mod protocol;
mod reply;
mod serve;
mod server;

pub use attach::{Attachment, LoopAttachment, Stale, stale};
pub use filesystem::{FileSystem, mount};
pub use memory::{Unprotected, protect_from_reclaim};
pub use mounts::{Use, uses};
pub use server::Server;
